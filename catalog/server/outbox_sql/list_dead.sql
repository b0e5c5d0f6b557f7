-- At most $limit dead letters, the oldest change first.
SELECT
    id, endpoint_id, kind, body, created_at, state, attempts, next_attempt_at, last_status, last_error
FROM deliveries
WHERE state = 'dead'
ORDER BY created_at, rowid
LIMIT $limit
