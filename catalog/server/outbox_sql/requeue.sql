-- Makes the dead letter $id due at $now, as if never tried; no row when it is not one.
-- Twice: no change.
UPDATE deliveries
SET state = 'pending', attempts = 0, next_attempt_at = $now
WHERE id = $id AND state = 'dead'
RETURNING id
