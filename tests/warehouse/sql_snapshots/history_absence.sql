-- name: log_withdrawn
INSERT INTO day_versions
SELECT
    c.event_id, c.version + 1, $observed_at, 'observed', ['withdrawn'], ['status'],
    $batch_id, $feed, $plan, $content_at,
    c.slug, c.title, c.description, c.displayed_date, c.date, c.date_end, c.date_type,
    c.is_estimated, c.categories, c.coins, c.impact, c.impact_band, c.impact_summary, c.source_url,
    c.snapshot_url, s.last_verified_at, c.created_at, s.updated_at,
    'withdrawn', NULL, s.known, s.extra
FROM absent AS a
JOIN event_current AS c USING (event_id)
JOIN event_seen AS s USING (event_id)
WHERE a.is_proven;
