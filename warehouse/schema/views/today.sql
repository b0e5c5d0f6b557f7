-- name: view_today
-- Grain: one row per event with an exact date that takes place on the UTC day of now(), also if it
-- is over, or began before; scheduled, and not missing.
-- Read twice: moves with the clock.
SELECT
    event_id,
    title,
    coins,
    displayed_date_full,
    date AS date_exact,
    date_precision,
    earliest,
    latest,
    impact,
    impact_band
FROM events
WHERE status = 'scheduled'
    AND missing_since IS NULL
    AND date_precision IN ('instant', 'day')
    AND earliest < _almanac.midnight(now()) + INTERVAL 24 HOURS
    AND latest > _almanac.midnight(now())
