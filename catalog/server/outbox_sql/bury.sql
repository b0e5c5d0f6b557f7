-- Makes dead letters of all that is pending for $endpoint_id, with $error. Twice: no change.
UPDATE deliveries
SET state = 'dead', next_attempt_at = NULL, last_error = $error
WHERE endpoint_id = $endpoint_id AND state = 'pending'
