-- name: find_withdrawn
CREATE OR REPLACE TEMP TABLE withdrawn AS
SELECT
    event_id,
    slug, title, description, displayed_date, date, date_end, date_type, is_estimated, categories,
    coins, impact, impact_band, impact_summary, source_url, snapshot_url, created_at,
    first_seen_at, version
FROM event_current
WHERE event_id IN (SELECT event_id FROM absent WHERE is_proven);

-- name: log_withdrawn
INSERT INTO day_versions
SELECT
    c.event_id, c.version + 1, $observed_at, 'observed', ['withdrawn'], ['status'],
    $batch_id, $feed, $plan, $content_at,
    c.slug, c.title, c.description, c.displayed_date, c.date, c.date_end, c.date_type,
    c.is_estimated, c.categories, c.coins, c.impact, c.impact_band, c.impact_summary, c.source_url,
    c.snapshot_url, s.last_verified_at, c.created_at, s.updated_at,
    'withdrawn', NULL, s.known, s.extra
FROM withdrawn AS c
JOIN event_seen AS s USING (event_id);

-- name: take_withdrawn_content
MERGE INTO event_content AS c USING withdrawn AS w ON c.event_id = w.event_id
WHEN MATCHED THEN UPDATE SET
    status = 'withdrawn', cancelled_at = NULL, changed_at = $observed_at, version = w.version + 1,
    is_saved = false
WHEN NOT MATCHED THEN INSERT VALUES (
    w.event_id,
    w.slug, w.title, w.description, w.displayed_date, w.date, w.date_end, w.date_type,
    w.is_estimated, w.categories, w.coins, w.impact, w.impact_band, w.impact_summary, w.source_url,
    w.snapshot_url, w.created_at,
    'withdrawn', NULL, w.first_seen_at, $observed_at, w.version + 1, false
);
