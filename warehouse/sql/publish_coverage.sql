-- Grain: one row per complete look at events or cancellations of some days.
-- Parameters: $first_day, the first of them. Run twice: the same rows.
SELECT
    batch_id, feed, plan, lower, upper, since, coins, categories, observed_at, content_at,
    arrived AS rows
FROM batches
WHERE observed_date >= $first_day
    AND complete
    AND status = 'merged'
    AND feed IN ('export', 'events', 'cancellations')
