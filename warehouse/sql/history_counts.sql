-- How many observed versions the files of a change log hold, in all and of each kind of change.
-- Grain: one row per kind, and one without a kind for all of them.
-- Parameters: files. Reads alone; run twice it gives the same.
WITH versions AS (
    FROM read_parquet($files, hive_partitioning = false) WHERE version > 0
)
SELECT NULL AS kind, count(*) AS versions FROM versions
UNION ALL
SELECT kind, count(*)
FROM (SELECT unnest(change_kinds) AS kind FROM versions)
GROUP BY kind;
