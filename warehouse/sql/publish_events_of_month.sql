-- Grain: one row per event of a month, for engines that read Parquet.
-- Parameters: $month; $file, where to. Run twice: the same file.
COPY (
    SELECT * EXCLUDE (event_month) FROM events_by_month WHERE event_month = $month ORDER BY event_id
) TO $file (FORMAT parquet, COMPRESSION zstd)
