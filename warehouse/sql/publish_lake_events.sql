-- Grain: one row per event, as the lake has it, where every connection to the staged file sees it.
-- Parameters: none. Run twice: made again.
CREATE OR REPLACE VIEW memory.main.lake_events AS
SELECT * EXCLUDE (last_seen_at, missing_since, content_at)
FROM staged.main.events
