-- name: view_clusters
-- Grain: one row per coin and UTC day on which two or more of its upcoming events with an exact date
-- begin.
-- Read twice: moves with the clock.
SELECT
    l.coin,
    any_value(l.symbol) AS symbol,
    any_value(l.name) AS name,
    _almanac.day_of(u.date_exact) AS day,
    count(*) AS events,
    sum(u.impact) AS sum_impact,
    max(u.impact) AS max_impact,
    list(u.event_id ORDER BY u.event_id) AS event_ids
FROM upcoming_events AS u
JOIN event_coins AS l ON l.event_id = u.event_id
WHERE u.date_exact IS NOT NULL
GROUP BY l.coin, _almanac.day_of(u.date_exact)
HAVING count(*) >= 2
