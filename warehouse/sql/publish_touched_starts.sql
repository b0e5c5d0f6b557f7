-- Grain: one row per version of the events that were touched, as they now stand in the tables.
-- Parameters: none. Run twice: made again.
CREATE OR REPLACE TEMP TABLE version_starts AS
SELECT event_id, version, known_from
FROM event_versions
WHERE event_id IN (SELECT event_id FROM touched)
