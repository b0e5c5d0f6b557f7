-- The $place-th delivery of each event among those at some positions. Grain: event.
CREATE OR REPLACE TEMP TABLE picked AS
SELECT * EXCLUDE (place)
FROM (
    SELECT *, row_number() OVER (
        PARTITION BY event_id ORDER BY observed_at, content_at, position
    ) AS place
    FROM seen
    WHERE list_contains($positions, position)
)
WHERE place = $place;
