-- name: view_upcoming_events
-- Grain: one row per event that is scheduled, not missing, and not over at now().
-- Read twice: moves with the clock.
-- An event is over at the end of the interval in which it may take place, not at its date: that is
-- the first instant of a day, or of the day of a deadline.
SELECT
    event_id,
    slug,
    title,
    displayed_date,
    displayed_date_full,
    _almanac.date_exact(date, date_precision) AS date_exact,
    date_precision,
    earliest,
    latest,
    _almanac.days_until(date, date_precision, now()) AS days_until,
    is_estimated,
    categories,
    coins,
    impact,
    impact_band,
    source_url
FROM events
WHERE status = 'scheduled' AND missing_since IS NULL AND latest > now()
