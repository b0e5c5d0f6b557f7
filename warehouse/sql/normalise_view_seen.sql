-- Grain: one row per readable row of an event feed. `position` is its place in the batch.
-- A view: counting a million rows while they are read would take the reader to one thread.
-- Run twice: the same view again.
CREATE OR REPLACE TEMP VIEW seen AS
SELECT coalesce(place, rowid) AS position, * EXCLUDE (place, reason, raw)
FROM normalised
WHERE reason IS NULL
