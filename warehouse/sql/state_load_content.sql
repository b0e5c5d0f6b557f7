-- The content of a checkpoint's events into an empty state. Grain: event.
INSERT INTO content BY NAME
SELECT
    event_id, slug, title, description, displayed_date, date, date_end, date_type,
    is_estimated, categories, coins, impact, impact_band, impact_summary, source_url,
    snapshot_url, created_at, status, cancelled_at, first_seen_at, changed_at, version
FROM read_parquet($file, hive_partitioning = false);
