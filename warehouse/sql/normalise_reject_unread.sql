-- Grain: one row per row of `normalised` that can't be read, into `rejected`.
-- Parameters: $batch_id, $raw_max (characters of the raw text that are kept; the id comes first).
-- Run twice: every row is there twice.
INSERT INTO rejected
SELECT
    $batch_id,
    coalesce(place, rowid),
    reason || CASE WHEN length(raw) > $raw_max THEN ' (raw text cut behind its id)' ELSE '' END,
    left(raw, $raw_max)
FROM normalised
WHERE reason IS NOT NULL
ORDER BY ALL
