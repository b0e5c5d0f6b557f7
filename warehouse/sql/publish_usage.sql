-- Grain: one row per read-out of the quota.
-- Parameters: $usage, the log's file. Run twice: the same rows.
-- A line that a crash cut short is no JSON, or no UTF-8, and is left out.
SELECT
    (line ->> '$.at')::TIMESTAMPTZ AS read_at,
    line ->> '$.plan' AS plan,
    (line ->> '$.used')::BIGINT AS used,
    (line ->> '$.quota')::BIGINT AS quota,
    (line ->> '$.remaining')::BIGINT AS remaining,
    (line ->> '$.reset_at')::TIMESTAMPTZ AS reset_at
FROM read_csv(
    $usage,
    auto_detect = false, columns = {'line': 'VARCHAR'}, header = false,
    delim = e'\x01', quote = '', escape = '', ignore_errors = true
)
WHERE CASE WHEN json_valid(line) THEN json_type(line) = 'OBJECT' ELSE false END
ORDER BY read_at
