-- Finds what is due to one endpoint without reading what is done.
-- Run once, in the transaction that makes the file.
CREATE INDEX deliveries_pending ON deliveries (endpoint_id, next_attempt_at)
WHERE state = 'pending'
