-- The rows of a checkpoint into an empty state. Grain: as the table.
INSERT INTO categories_state BY NAME SELECT * FROM read_parquet($file, hive_partitioning = false);
