-- At most $limit pending deliveries of $endpoint_id that are due at $now, the longest due first.
SELECT
    id, endpoint_id, kind, body, created_at, state, attempts, next_attempt_at, last_status, last_error
FROM deliveries
WHERE state = 'pending' AND endpoint_id = $endpoint_id AND next_attempt_at <= $now
ORDER BY next_attempt_at, rowid
LIMIT $limit
