-- name: view_coin_calendar
-- Grain: one row per coin and scheduled event that is not missing, past ones too.
-- Parameters: none. Read twice: moves with the clock.
SELECT
    l.coin,
    l.symbol,
    l.name,
    c.rank,
    e.event_id,
    e.title,
    e.displayed_date,
    e.displayed_date_full,
    _almanac.date_exact(e.date, e.date_precision) AS date_exact,
    e.date_precision,
    e.earliest,
    e.latest,
    coalesce(e.latest > now(), false) AS is_upcoming,
    e.is_estimated,
    e.impact,
    e.impact_band
FROM event_coins AS l
JOIN events AS e ON e.event_id = l.event_id
LEFT JOIN coins AS c ON c.slug = l.coin
WHERE e.status = 'scheduled' AND e.missing_since IS NULL
