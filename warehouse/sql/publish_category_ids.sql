-- Grain: one row per event and category whose id is not as it is now: it follows from the name, as
-- in publish_event_categories, and may change while the event does not.
-- Parameters: none. Run twice: changes nothing.
UPDATE event_categories SET category_id = s.category_id
FROM (
    SELECT l.category, c.category_id
    FROM (SELECT DISTINCT category FROM event_categories) AS l
    LEFT JOIN (
        SELECT lower(name) AS folded, min(id) AS category_id FROM categories GROUP BY lower(name)
    ) AS c ON c.folded = lower(l.category)
) AS s
WHERE event_categories.category = s.category
    AND event_categories.category_id IS DISTINCT FROM s.category_id
