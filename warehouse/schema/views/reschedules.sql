-- name: view_reschedules
-- Grain: one row per version that moved its event in time, beside the version before it.
-- Parameters: none. Read twice: the same rows.
SELECT
    new.event_id,
    new.title,
    new.version,
    new.known_from,
    old.displayed_date AS old_displayed_date,
    new.displayed_date AS new_displayed_date,
    CASE WHEN NOT old.is_estimated THEN old.date END AS old_date_exact,
    CASE WHEN NOT new.is_estimated THEN new.date END AS new_date_exact,
    CASE
        WHEN old.is_estimated = new.is_estimated
            THEN (epoch_us(new.date) - epoch_us(old.date)) / 86400e6
    END AS shift_days
FROM event_versions AS new
JOIN event_versions AS old ON old.event_id = new.event_id AND old.version = new.version - 1
WHERE list_contains(new.change_kinds, 'rescheduled')
