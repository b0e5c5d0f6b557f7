-- Grain: one row per event, from the newest checkpoint.
-- Parameters: $events, its file. Run twice: the same rows.
SELECT c.* EXCLUDE (extra, known), u.unknown_fields, c.extra::JSON AS extra
FROM (
    SELECT
        event_id, slug, title, description, displayed_date, date, date_end, date_type,
        is_estimated, categories, coins, impact, impact_band, impact_summary, source_url,
        snapshot_url, last_verified_at, created_at, updated_at, status, cancelled_at,
        first_seen_at, last_seen_at, missing_since, changed_at, content_at, version, known, extra
    FROM read_parquet($events, hive_partitioning = false)
) AS c
JOIN unknown_fields AS u ON u.known = c.known
