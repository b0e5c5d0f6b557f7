-- Records that $id was answered with the 2xx $status, whatever became of it meanwhile.
-- Twice: no change.
UPDATE deliveries
SET
    state = 'delivered', body = NULL, attempts = attempts + 1, next_attempt_at = NULL,
    last_status = $status, last_error = NULL
WHERE id = $id AND state <> 'delivered'
