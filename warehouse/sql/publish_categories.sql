-- Grain: one row per category, from the newest checkpoint.
-- Parameters: $categories, its file. Run twice: the same rows.
SELECT id, name, first_seen_at, last_seen_at
FROM read_parquet($categories, hive_partitioning = false)
