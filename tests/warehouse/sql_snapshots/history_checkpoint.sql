-- name: save_content
SELECT
    event_id,
    slug, title, description, displayed_date, date, date_end, date_type, is_estimated, categories,
    coins, impact, impact_band, impact_summary, source_url, snapshot_url, created_at,
    status, cancelled_at, first_seen_at, changed_at, version
FROM event_current;

-- name: view_content
CREATE OR REPLACE VIEW event_current AS
SELECT * EXCLUDE (is_saved) FROM event_content
UNION ALL
SELECT
    f.event_id,
    f.slug, f.title, f.description, f.displayed_date, f.date, f.date_end, f.date_type,
    f.is_estimated, f.categories, f.coins, f.impact, f.impact_band, f.impact_summary, f.source_url,
    f.snapshot_url, f.created_at,
    f.status, f.cancelled_at, f.first_seen_at, f.changed_at, f.version
FROM read_parquet(getvariable('content_file'), hive_partitioning = false) AS f
ANTI JOIN event_content AS c ON c.event_id = f.event_id;

-- name: load_seen
INSERT INTO event_seen BY NAME
SELECT
    event_id, known, last_verified_at, updated_at, extra, content_at, shown_at,
    accepted_at, last_seen_at, missing_since, absent_at, absent_export_at, absent_export_content_at,
    content_md5, row_md5
FROM read_parquet($file, hive_partitioning = false);
