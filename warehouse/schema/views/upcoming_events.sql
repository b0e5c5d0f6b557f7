-- name: view_upcoming_events
-- Grain: one row per event that is scheduled, not missing, and not over at now().
-- Parameters: none. Read twice: moves with the clock.
-- An estimated date is a deadline: it bounds what is upcoming, and is never shown.
SELECT
    event_id,
    slug,
    title,
    displayed_date,
    CASE WHEN NOT is_estimated THEN date END AS date_exact,
    CASE WHEN NOT is_estimated THEN (epoch_us(date) - epoch_us(now())) / 86400e6 END AS days_until,
    is_estimated,
    categories,
    coins,
    impact,
    impact_band,
    source_url
FROM events
WHERE status = 'scheduled'
    AND missing_since IS NULL
    AND coalesce(date_end, date) >= now()
