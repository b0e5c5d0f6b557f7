-- Grain: one row, the instant of the first look at events; NULL where there was none.
-- Parameters: none. Run twice: the same row.
SELECT min(observed_at) AS first_at
FROM batches
WHERE status = 'merged' AND feed IN ('export', 'events', 'event', 'deliveries')
