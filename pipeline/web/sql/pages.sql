-- What every page shows.

-- name: pulls_around
-- Grain: one row: the first pull of events, the last one at or before $at, and its neighbours. Nothing
-- is later than $now. NULL where there is none.
-- Parameters: $at, $now. Run twice: the same row.
WITH pulls AS (
    SELECT DISTINCT observed_at
    FROM batches
    WHERE status = 'merged'
        AND feed IN ('export', 'events', 'event', 'deliveries')
        AND observed_at <= $now::TIMESTAMPTZ
),
here AS (
    SELECT max(observed_at) AS observed_at FROM pulls WHERE observed_at <= $at::TIMESTAMPTZ
)
SELECT
    min(p.observed_at) AS first,
    max(p.observed_at) FILTER (WHERE p.observed_at < h.observed_at) AS previous,
    any_value(h.observed_at) AS current,
    min(p.observed_at) FILTER (WHERE p.observed_at > $at::TIMESTAMPTZ) AS next
FROM here AS h
LEFT JOIN pulls AS p ON true
