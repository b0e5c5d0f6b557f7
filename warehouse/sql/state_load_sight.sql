-- When a checkpoint's events were seen, into an empty state. Grain: event.
INSERT INTO sight BY NAME
SELECT
    event_id, known, last_verified_at, updated_at, extra, content_at, last_seen_at,
    missing_since, absent_export_at, content_md5, row_md5
FROM read_parquet($file, hive_partitioning = false);
