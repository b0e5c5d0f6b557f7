-- Grain: one row per event of a month, for engines that read Parquet; from publish_lake_events.
-- Parameters: $month; $file, where to. Run twice: the same file.
COPY (
    SELECT *
    FROM memory.main.lake_events
    WHERE (
            date >= try_cast($month || '-01' AS TIMESTAMPTZ)
            AND date < try_cast($month || '-01' AS TIMESTAMPTZ) + INTERVAL 1 MONTH
        )
        OR ($month = '__HIVE_DEFAULT_PARTITION__' AND date IS NULL)
    ORDER BY event_id
) TO $file (FORMAT parquet, COMPRESSION zstd)
