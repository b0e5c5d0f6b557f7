-- Grain: one row per element of $rows, a JSON array of position, reason and raw, into `rejected`.
-- Parameters: $batch_id, $rows.
-- Run twice: every row is there twice.
INSERT INTO rejected
SELECT $batch_id, one.position, one.reason, one.raw
FROM (
    SELECT unnest(
        from_json($rows, '[{"position": "BIGINT", "reason": "VARCHAR", "raw": "VARCHAR"}]')
    ) AS one
)
