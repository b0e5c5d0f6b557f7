-- Grain: one row per event and category. Events carry names; the id is found by name, in any case.
-- Parameters: none. Run twice: the same rows.
SELECT l.event_id, c.category_id, l.category
FROM (SELECT event_id, unnest(categories) AS category FROM events) AS l
LEFT JOIN (
    SELECT lower(name) AS folded, min(id) AS category_id FROM categories GROUP BY lower(name)
) AS c ON c.folded = lower(l.category)
