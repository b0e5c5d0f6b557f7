-- name: view_announcement_lead_times
-- Grain: one row per event of which it is known how it was announced.
-- Parameters: none. Read twice: the same rows.
-- Whoever announces an event by a deadline or in a period expects it: it is not taken to begin on a
-- day before its announcement, unless all of that time was over.
SELECT
    event_id,
    title,
    status,
    basis,
    created_at,
    first_seen_at,
    displayed_date_full AS announced_displayed_date,
    _almanac.date_exact(date, date_precision) AS announced_date_exact,
    date_precision AS announced_precision,
    earliest AS announced_earliest,
    latest AS announced_latest,
    CASE
        WHEN lead_days IS NOT NULL THEN lead_days
        WHEN last_days IS NOT NULL THEN greatest(first_days, least(0, last_days))
    END AS least_lead_days,
    coalesce(lead_days, last_days) AS most_lead_days,
    lead_days,
    moved
FROM (
    SELECT
        e.event_id,
        e.title,
        e.status,
        a.basis,
        a.created_at,
        e.first_seen_at,
        a.displayed_date_full,
        a.date,
        a.date_precision,
        a.earliest,
        a.latest,
        _almanac.days_until(a.date, a.date_precision, a.created_at)::DOUBLE AS lead_days,
        (
            _almanac.first_day(a.date, a.date_precision, a.earliest, a.created_at)
            - _almanac.day_of(a.created_at)
        )::DOUBLE AS first_days,
        (
            _almanac.last_day(
                a.date, a.date_precision, _almanac.begins_by(a.date, a.date_precision, a.earliest)
            )
            - _almanac.day_of(a.created_at)
        )::DOUBLE AS last_days,
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
)
