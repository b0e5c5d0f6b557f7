-- Grain: one row per read-out of the quota.
-- Parameters: $usage, the log's file. Run twice: the same rows.
-- A line that a crash cut short is no JSON, or no UTF-8, and is left out; so is what a
-- disk made of one, and a value that is none.
SELECT
    TRY_CAST(line ->> '$.at' AS TIMESTAMPTZ) AS read_at,
    line ->> '$.plan' AS plan,
    TRY_CAST(line ->> '$.used' AS BIGINT) AS used,
    TRY_CAST(line ->> '$.quota' AS BIGINT) AS quota,
    TRY_CAST(line ->> '$.remaining' AS BIGINT) AS remaining,
    TRY_CAST(line ->> '$.reset_at' AS TIMESTAMPTZ) AS reset_at
FROM read_csv(
    $usage,
    auto_detect = false, columns = {'line': 'VARCHAR'}, header = false,
    delim = e'\x01', quote = '', escape = '', ignore_errors = true,
    strict_mode = false, max_line_size = 16_000_000
)
WHERE CASE WHEN json_valid(line) THEN json_type(line) = 'OBJECT' ELSE false END
ORDER BY read_at
