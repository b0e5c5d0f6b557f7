-- name: macro_upcoming_as_of
-- Grain: one row per event that was scheduled, not missing, and not over at the instant `ts`, as it
-- was known then. An error for an instant without an answer, as events_as_of.
-- Parameters: ts, an instant as in events_as_of.
-- A comparison with NULL would be a filter without rows, which skips the check of the instant.
CREATE MACRO upcoming_as_of(ts) AS TABLE
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
    _almanac.days_until(date, date_precision, _almanac.instant(ts)) AS days_until,
    is_estimated,
    categories,
    coins,
    impact,
    impact_band,
    source_url
FROM events_as_of(ts)
WHERE status = 'scheduled'
    AND missing_since IS NULL
    AND latest > coalesce(_almanac.instant(ts), '-infinity')
