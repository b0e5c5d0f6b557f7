-- The versions of a day already folded, to go on with. Grain: event, version. Claims follow
-- from first versions.
INSERT INTO log BY NAME
SELECT * FROM read_parquet($file, hive_partitioning = false) WHERE version > 0;
