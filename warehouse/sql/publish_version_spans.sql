-- Grain: one row per version whose event has another: until when it held, and when its event was
-- first observed (NULL in version 0, which was not).
-- Parameters: none. Run twice: made again.
CREATE OR REPLACE TEMP TABLE version_spans AS
SELECT
    event_id,
    version,
    lead(known_from) OVER of_event AS known_to,
    CASE
        WHEN version > 0 THEN min(known_from) FILTER (version > 0) OVER (PARTITION BY event_id)
    END AS first_seen_at
FROM version_starts
WHERE event_id IN (SELECT event_id FROM version_starts WHERE version <> 1)
WINDOW of_event AS (PARTITION BY event_id ORDER BY version)
