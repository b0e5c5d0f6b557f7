-- Lists dead letters without reading what is done.
-- Run once, in the transaction that makes the file.
CREATE INDEX deliveries_dead ON deliveries (created_at) WHERE state = 'dead'
