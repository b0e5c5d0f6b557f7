-- Records a failed attempt of $id; $next_attempt_at NULL makes it a dead letter.
-- Only while it is pending. Twice: two attempts are counted.
UPDATE deliveries
SET
    state = iif($next_attempt_at IS NULL, 'dead', 'pending'),
    attempts = attempts + 1, next_attempt_at = $next_attempt_at,
    last_status = $status, last_error = $error
WHERE id = $id AND state = 'pending'
