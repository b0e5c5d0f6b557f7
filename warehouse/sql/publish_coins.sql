-- Grain: one row per coin, from the newest checkpoint.
-- Parameters: $coins, its file. Run twice: the same rows.
SELECT
    slug, symbol, name, rank, tracked, icon_url, upcoming_count, major_count, peak_impact,
    first_seen_at, last_seen_at, missing_since, content_at
FROM read_parquet($coins, hive_partitioning = false)
