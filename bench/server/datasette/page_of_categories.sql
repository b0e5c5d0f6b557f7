-- The first page of the events of some categories. Grain: one row an event, with the total of all pages.
-- Parameters: :begun (days before :from, of the longest event), :from, :to (dates), :limit,
-- :categories (JSON list). Reads only.
WITH span AS MATERIALIZED (
    SELECT DISTINCT date, id FROM event_categories
    WHERE
        category IN (SELECT value FROM json_each(:categories))
        AND date >= :begun AND date <= :to AND (date >= :from OR date_end >= :from)
),
page AS (SELECT date, id FROM span ORDER BY date, id LIMIT :limit)
SELECT shown_events.*, (SELECT count(*) FROM span) AS total
FROM page CROSS JOIN shown_events ON shown_events.id = page.id
ORDER BY page.date, page.id
