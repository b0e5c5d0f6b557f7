-- Grain: one row per event and category. Events carry names; the id is found by name, in any case.
-- Parameters: $everything; else only the events in `touched`. Run twice: the same rows.
SELECT l.event_id, c.category_id, l.category
FROM (
    SELECT event_id, unnest(categories) AS category
    FROM events
    WHERE $everything OR event_id IN (SELECT event_id FROM touched)
) AS l
LEFT JOIN (
    SELECT lower(name) AS folded, min(id) AS category_id FROM categories GROUP BY lower(name)
) AS c ON c.folded = lower(l.category)
