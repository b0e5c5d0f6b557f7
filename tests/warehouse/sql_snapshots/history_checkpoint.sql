-- name: list_state_events
SELECT
    c.event_id,
    c.slug, c.title, c.description, c.displayed_date, c.date, c.date_end, c.date_type,
    c.is_estimated, c.categories, c.coins, c.impact, c.impact_band, c.impact_summary, c.source_url,
    c.snapshot_url, s.last_verified_at, c.created_at, s.updated_at,
    c.status, c.cancelled_at, s.known, s.extra, c.first_seen_at, s.last_seen_at,
    s.missing_since, c.changed_at, s.content_at, s.shown_at, s.accepted_at, c.version, s.absent_at,
    s.absent_export_at, s.absent_export_content_at, s.content_md5, s.row_md5
FROM event_current AS c
JOIN event_seen AS s USING (event_id);

-- name: load_current
INSERT INTO event_current BY NAME
SELECT
    event_id,
    slug, title, description, displayed_date, date, date_end, date_type, is_estimated, categories,
    coins, impact, impact_band, impact_summary, source_url, snapshot_url, created_at,
    status, cancelled_at, first_seen_at, changed_at, version
FROM read_parquet($file, hive_partitioning = false);

-- name: load_seen
INSERT INTO event_seen BY NAME
SELECT
    event_id, known, last_verified_at, updated_at, extra, content_at, shown_at,
    accepted_at, last_seen_at, missing_since, absent_at, absent_export_at, absent_export_content_at,
    content_md5, row_md5
FROM read_parquet($file, hive_partitioning = false);
