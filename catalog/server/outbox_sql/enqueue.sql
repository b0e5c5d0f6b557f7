-- Adds one delivery ($id, $endpoint_id, $kind, $body, $created_at), due at $next_attempt_at.
-- Twice: the first stays as it is.
INSERT INTO deliveries
    (id, endpoint_id, kind, body, created_at, state, attempts, next_attempt_at)
VALUES
    ($id, $endpoint_id, $kind, $body, $created_at, 'pending', 0, $next_attempt_at)
ON CONFLICT (id) DO NOTHING
