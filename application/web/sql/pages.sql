-- What every page shows.

-- name: pull_times
-- Grain: one row per time of a pull of events, oldest first.
-- Parameters: none. Run twice: the same rows.
SELECT DISTINCT observed_at
FROM batches
WHERE status = 'merged' AND feed IN ('export', 'events', 'event', 'deliveries')
ORDER BY observed_at
