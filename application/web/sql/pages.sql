-- What every page shows.

-- name: pull_times
-- Grain: one row per time of a pull of events, oldest first; whether a complete one included its day.
-- Parameters: none. Run twice: the same rows.
SELECT
    observed_at,
    bool_or(
        feed IN ('export', 'events')
        AND complete
        AND coalesce(lower <= observed_at, true)
        AND coalesce(upper >= observed_at, true)
    ) AS is_complete
FROM batches
WHERE status = 'merged' AND feed IN ('export', 'events', 'event', 'deliveries')
GROUP BY observed_at
ORDER BY observed_at
