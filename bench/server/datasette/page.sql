-- The first page of the events of a range. Grain: one row an event, with the total of all pages.
-- Parameters: :begun (days before :from, of the longest event), :from, :to (dates), :limit. Reads only.
WITH page AS (
    SELECT date, id FROM events
    WHERE date_end IS NOT NULL AND date >= :begun AND date < :from AND date_end >= :from
    UNION ALL
    SELECT date, id FROM events WHERE date >= :from AND date <= :to
    ORDER BY date, id
    LIMIT :limit
)
SELECT
    shown_events.*,
    (
        SELECT count(*) FROM events
        WHERE date_end IS NOT NULL AND date >= :begun AND date < :from AND date_end >= :from
    ) + (SELECT count(*) FROM events WHERE date >= :from AND date <= :to) AS total
FROM page CROSS JOIN shown_events ON shown_events.id = page.id
ORDER BY page.date, page.id
