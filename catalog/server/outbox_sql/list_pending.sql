-- At most $limit pending deliveries, the next one first.
SELECT
    id, endpoint_id, kind, body, created_at, state, attempts, next_attempt_at, last_status, last_error
FROM deliveries
WHERE state = 'pending'
ORDER BY next_attempt_at, rowid
LIMIT $limit
