-- Grain: one row per event of some months, in the order of the files by month.
-- Parameters: $months, none is all. Run twice: made again.
CREATE OR REPLACE TEMP TABLE events_by_month AS
SELECT *
FROM (
    SELECT
        coalesce(strftime(date, '%Y-%m'), '__HIVE_DEFAULT_PARTITION__') AS event_month,
        * EXCLUDE (last_seen_at, missing_since, content_at)
    FROM events
)
WHERE len($months) = 0 OR list_contains($months, event_month)
ORDER BY event_month, event_id
