-- name: view_cancellation_stats
-- Grain: one row per category of any event.
-- Parameters: none. Read twice: the same rows.
SELECT
    any_value(c.category_id) AS category_id,
    c.category,
    count(*) AS events,
    count(*) FILTER (WHERE e.status = 'cancelled') AS cancelled,
    count(*) FILTER (WHERE e.status = 'cancelled') / count(*) AS share
FROM event_categories AS c
JOIN events AS e ON e.event_id = c.event_id
GROUP BY c.category
