-- name: view_announcement_lead_times
-- Grain: one row per event of which it is known how it was announced.
-- Parameters: none. Read twice: the same rows.
SELECT
    e.event_id,
    e.title,
    e.status,
    a.basis,
    a.created_at,
    e.first_seen_at,
    a.displayed_date_full AS announced_displayed_date,
    _almanac.date_exact(a.date, a.date_precision) AS announced_date_exact,
    a.date_precision AS announced_precision,
    a.earliest AS announced_earliest,
    a.latest AS announced_latest,
    _almanac.least_lead(
        a.date, a.date_precision, a.earliest,
        _almanac.begins_by(a.date, a.date_precision, a.earliest), a.created_at
    ) AS least_lead_days,
    _almanac.most_lead(
        a.date, a.date_precision, _almanac.begins_by(a.date, a.date_precision, a.earliest),
        a.created_at
    ) AS most_lead_days,
    _almanac.days_until(a.date, a.date_precision, a.created_at)::DOUBLE AS lead_days,
    m.event_id IS NOT NULL AS moved
FROM (
    SELECT
        'observed' AS basis, event_id, created_at, date, date_precision, earliest, latest,
        displayed_date_full
    FROM event_versions
    WHERE known_from = first_seen_at
        AND _almanac.was_known(known_from, known_to)
        AND event_id IN (
            SELECT event_id
            FROM event_versions
            WHERE version = 1 AND list_contains(change_kinds, 'created')
        )
    UNION ALL
    SELECT
        'claimed', event_id, created_at, date, date_precision, earliest, latest,
        displayed_date_full
    FROM event_claims
    WHERE list_contains(change_kinds, 'created')
        AND NOT list_contains(unknown_fields, 'date')
        AND event_id NOT IN (
            SELECT event_id
            FROM event_versions
            WHERE version = 1 AND list_contains(change_kinds, 'created')
        )
) AS a
JOIN events AS e ON e.event_id = a.event_id
LEFT JOIN (SELECT DISTINCT event_id FROM reschedules) AS m ON m.event_id = a.event_id
