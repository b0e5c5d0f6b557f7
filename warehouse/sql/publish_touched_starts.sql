-- Grain: one row per version of the events whose versions differ from what was published, as they
-- now stand in the table.
-- Parameters: none. Run twice: made again.
CREATE OR REPLACE TEMP TABLE version_starts AS
SELECT event_id, version, known_from
FROM event_versions
WHERE event_id IN (
    SELECT event_id FROM gone_event_versions
    UNION
    SELECT event_id FROM new_event_versions
)
