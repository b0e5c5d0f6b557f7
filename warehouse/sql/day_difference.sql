-- How many versions of a day are new or other, and how many are no more. Grain: one row.
WITH old AS (SELECT * FROM read_parquet($file, hive_partitioning = false) WHERE version > 0)
SELECT
    (SELECT count(*) FROM (FROM log EXCEPT ALL FROM old)),
    (SELECT count(*) FROM (FROM old EXCEPT ALL FROM log));
