-- Grain: one row per event, as the lake has it. Those of a month lie side by side, so that one can
-- be read without a look at the others. Same columns as publish_lake_events, in whose place it is.
-- Parameters: none. Run twice: fails; one connection writes the lake's events once.
CREATE TABLE memory.main.lake_events AS
SELECT * EXCLUDE (last_seen_at, missing_since, content_at)
FROM staged.main.events
ORDER BY date
