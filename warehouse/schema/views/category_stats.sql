-- name: view_category_stats
-- Grain: one row per category of any event.
-- Parameters: none. Read twice: moves with the clock.
SELECT
    any_value(c.category_id) AS category_id,
    c.category,
    count(*) AS events,
    count(u.event_id) AS upcoming,
    count(*) FILTER (WHERE e.is_estimated) AS estimated,
    count(m.event_id) AS rescheduled,
    avg(e.impact) AS mean_impact
FROM event_categories AS c
JOIN events AS e ON e.event_id = c.event_id
LEFT JOIN upcoming_events AS u ON u.event_id = c.event_id
LEFT JOIN (SELECT DISTINCT event_id FROM reschedules) AS m ON m.event_id = c.event_id
GROUP BY c.category
