-- name: find_withdrawn
CREATE OR REPLACE TEMP TABLE withdrawn AS
SELECT
    c.event_id, c.version + 1 AS version, $observed_at AS observed_at,
    ['withdrawn'] AS change_kinds, ['status'] AS changed_fields, $content_at AS content_at,
    c.slug, c.title, c.description, c.displayed_date, c.date, c.date_end, c.date_type,
    c.is_estimated, c.categories, c.coins, c.impact, c.impact_band, c.impact_summary, c.source_url,
    c.snapshot_url, s.last_verified_at, c.created_at, s.updated_at,
    'withdrawn' AS status, NULL::TIMESTAMPTZ AS cancelled_at,
    c.date_precision, c.earliest, c.latest, c.displayed_date_full,
    c.first_seen_at, unknown_of(s.known) AS unknown_fields, s.extra
FROM events AS c
JOIN event_seen AS s USING (event_id)
WHERE c.event_id IN (SELECT event_id FROM absent WHERE is_proven);
