-- name: view_missing_events
-- Grain: one row per event that complete pulls should show and do not.
SELECT
    event_id,
    title,
    coins,
    displayed_date_full,
    _almanac.date_exact(date, date_precision) AS date_exact,
    date_precision,
    earliest,
    latest,
    missing_since,
    last_seen_at,
    impact,
    impact_band
FROM events
WHERE missing_since IS NOT NULL
