-- Grain: one row per attempt of a request.
-- Parameters: $requests, the log's files. Run twice: the same rows.
-- A line that a crash cut short is no JSON, or no UTF-8, and is left out.
SELECT
    (line ->> '$.at')::TIMESTAMPTZ AS sent_at,
    line ->> '$.path' AS path,
    (line ->> '$.status')::INTEGER AS status,
    (line ->> '$.seconds')::DOUBLE AS seconds,
    (line ->> '$.bytes')::BIGINT AS bytes,
    (line ->> '$.attempt')::INTEGER AS attempt,
    line ->> '$.key_fingerprint' AS key_fingerprint
FROM read_csv(
    $requests,
    auto_detect = false, columns = {'line': 'VARCHAR'}, header = false,
    delim = e'\x01', quote = '', escape = '', ignore_errors = true
)
WHERE CASE WHEN json_valid(line) THEN json_type(line) = 'OBJECT' ELSE false END
ORDER BY sent_at
