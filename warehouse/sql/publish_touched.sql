-- Grain: one row per event whose state or versions differ from what was published.
-- Parameters: none. Run twice: made again.
CREATE OR REPLACE TEMP TABLE touched AS
SELECT event_id FROM gone_events
UNION
SELECT event_id FROM new_events
UNION
SELECT event_id FROM gone_event_versions
UNION
SELECT event_id FROM new_event_versions
