-- name: view_announcement_lead_times
-- Grain: one row per event that has an exact date and was not withdrawn.
-- Parameters: none. Read twice: the same rows.
SELECT
    event_id,
    title,
    date AS date_exact,
    created_at,
    first_seen_at,
    (epoch_us(date) - epoch_us(least(created_at, first_seen_at))) / 86400e6 AS lead_days
FROM events
WHERE NOT is_estimated AND status <> 'withdrawn'
