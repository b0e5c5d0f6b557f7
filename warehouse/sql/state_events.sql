-- The whole state of events, as a checkpoint keeps it. Grain: event.
SELECT
    c.event_id,
    c.slug, c.title, c.description, c.displayed_date, c.date, c.date_end, c.date_type,
    c.is_estimated, c.categories, c.coins, c.impact, c.impact_band, c.impact_summary,
    c.source_url, c.snapshot_url, s.last_verified_at, c.created_at, s.updated_at,
    c.status, c.cancelled_at, s.known, s.extra, c.first_seen_at, s.last_seen_at,
    s.missing_since, c.changed_at, s.content_at, c.version, s.absent_export_at, s.content_md5,
    s.row_md5
FROM content AS c
JOIN sight AS s USING (event_id);
