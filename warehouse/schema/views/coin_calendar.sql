-- name: view_coin_calendar
-- Grain: one row per coin and scheduled event that is not missing, past ones too.
-- Parameters: none. Read twice: moves with the clock.
SELECT
    l.slug,
    l.symbol,
    l.name,
    c.rank,
    e.event_id,
    e.title,
    e.displayed_date,
    CASE WHEN NOT e.is_estimated THEN e.date END AS date_exact,
    coalesce(e.date_end, e.date) >= now() AS is_upcoming,
    e.is_estimated,
    e.impact,
    e.impact_band
FROM event_coins AS l
JOIN events AS e ON e.event_id = l.event_id
LEFT JOIN coins AS c ON c.slug = l.slug
WHERE e.status = 'scheduled' AND e.missing_since IS NULL
