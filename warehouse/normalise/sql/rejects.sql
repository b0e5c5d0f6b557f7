-- Rows that can't be read, with the reason and the raw text.
--
--     create_rejected → reject_rows (read in Python) | reject_unread (read in SQL)
--     → first_reject

-- name: create_rejected
-- Grain: one row per row that could not be read, at its place in the batch.
-- Run twice: empty again.
CREATE OR REPLACE TEMP TABLE rejected (
    batch_id VARCHAR,
    position BIGINT,
    reason VARCHAR,
    raw VARCHAR
)

-- name: reject_rows
-- Grain: one row per element of $rows, a JSON array of position, reason and raw, into `rejected`.
-- Parameters: $batch_id, $rows.
-- Run twice: every row is there twice.
INSERT INTO rejected
SELECT $batch_id, parsed.position, parsed.reason, parsed.raw
FROM (
    SELECT unnest(
        from_json($rows, '[{"position": "BIGINT", "reason": "VARCHAR", "raw": "VARCHAR"}]')
    ) AS parsed
)

-- name: reject_unread
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

-- name: first_reject
-- Grain: one row: the first row of the batch that can't be read. Reads only.
SELECT position, reason FROM rejected ORDER BY position LIMIT 1
