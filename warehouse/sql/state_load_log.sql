-- The versions of a day already folded, to go on with. Grain: event, version.
INSERT INTO log BY NAME
SELECT * FROM read_parquet($file, hive_partitioning = false);
