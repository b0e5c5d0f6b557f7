-- The coins of a day already folded, to go on with. Grain: slug.
INSERT INTO snapshot BY NAME
SELECT * FROM read_parquet($file, hive_partitioning = false);
