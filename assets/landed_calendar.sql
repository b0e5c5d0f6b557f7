-- The months of the calendar that a pull of the whole catalog or a backfill has covered.

-- name: covered_months
-- Grain: one row per month of $months that a complete pull covers or that is in $backfilled, oldest
-- first: the month, the number of its events as now known, and the newest such pull. A list without
-- an upper bound ends where the plan does, so only the export's covers all months. Run twice: the
-- same rows.
SELECT
    months.month,
    (
        SELECT count(*)
        FROM events
        WHERE date >= months.month AND date < months.month + INTERVAL 1 MONTH
    ) AS events,
    max_by(pulls.batch_id, pulls.observed_at) AS batch_id,
    max(pulls.observed_at) AS observed_at
FROM (SELECT unnest($months::TIMESTAMPTZ[]) AS month) AS months
LEFT JOIN coverage AS pulls
    ON pulls.feed IN ('export', 'events')
    AND pulls.lower <= months.month
    AND (
        pulls.upper >= months.month + INTERVAL 1 MONTH - INTERVAL 1 MICROSECOND
        OR (pulls.upper IS NULL AND pulls.feed = 'export')
    )
GROUP BY months.month
HAVING batch_id IS NOT NULL OR months.month IN (SELECT unnest($backfilled::TIMESTAMPTZ[]))
ORDER BY months.month
