-- Grain: one row per event listed as cancelled, from the newest checkpoint.
-- Parameters: $cancellations, its file. Run twice: the same rows.
SELECT event_id, cancelled_at, first_seen_at, last_seen_at, batch_id
FROM read_parquet($cancellations, hive_partitioning = false)
