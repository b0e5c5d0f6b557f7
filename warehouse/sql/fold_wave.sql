-- The rows of one look, one row per event. Grain: event.
-- Of rows with the same id in one answer the newest content is taken, then the last to arrive.
CREATE OR REPLACE TEMP TABLE picked AS
SELECT * EXCLUDE (place)
FROM (
    SELECT *, row_number() OVER (
        PARTITION BY event_id
        ORDER BY content_at DESC, believed(updated_at, observed_at) DESC NULLS LAST, position DESC
    ) AS place
    FROM seen
)
WHERE place = 1 AND status <> 'not_found';
