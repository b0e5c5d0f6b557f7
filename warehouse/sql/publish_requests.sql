-- Grain: one row per attempt of a request.
-- Parameters: $requests, the log's files. Run twice: the same rows.
-- A line that a crash cut short is no JSON, or no UTF-8, and is left out; so is what a
-- disk made of one, and a value that is none.
SELECT
    TRY_CAST(line ->> '$.at' AS TIMESTAMPTZ) AS sent_at,
    line ->> '$.path' AS path,
    TRY_CAST(line ->> '$.status' AS INTEGER) AS status,
    TRY_CAST(line ->> '$.seconds' AS DOUBLE) AS seconds,
    TRY_CAST(line ->> '$.bytes' AS BIGINT) AS bytes,
    TRY_CAST(line ->> '$.attempt' AS INTEGER) AS attempt,
    line ->> '$.key_fingerprint' AS key_fingerprint
FROM read_csv(
    $requests,
    auto_detect = false, columns = {'line': 'VARCHAR'}, header = false,
    delim = e'\x01', quote = '', escape = '', ignore_errors = true,
    strict_mode = false, max_line_size = 16_000_000
)
WHERE CASE WHEN json_valid(line) THEN json_type(line) = 'OBJECT' ELSE false END
ORDER BY sent_at
