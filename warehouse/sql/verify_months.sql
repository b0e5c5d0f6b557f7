-- How many events by month there are, only there, and only published. Grain: one row.
-- Parameters: $files, those of the months.
WITH
    lake AS (
        SELECT * EXCLUDE (extra), extra::VARCHAR AS extra
        FROM read_parquet($files, hive_partitioning = false, union_by_name = true)
    ),
    told AS (
        SELECT * EXCLUDE (last_seen_at, missing_since, content_at, extra), extra::VARCHAR AS extra
        FROM published.main.events
    )
SELECT
    (SELECT count(*) FROM lake),
    (SELECT count(*) FROM (FROM lake EXCEPT ALL FROM told)),
    (SELECT count(*) FROM (FROM told EXCEPT ALL FROM lake));
