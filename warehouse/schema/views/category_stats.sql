-- name: view_category_stats
-- Grain: one row per category of any event.
-- Read twice: moves with the clock.
-- Moves are counted of the events at risk alone: of the others the dates they had before are not known.
-- A share is of those that are due: the others may still be moved.
SELECT
    any_value(category_id) AS category_id,
    category,
    count(*) AS events,
    count(*) FILTER (WHERE is_upcoming) AS upcoming,
    count(*) FILTER (WHERE is_estimated) AS estimated,
    count(impact) AS scored,
    avg(impact) AS mean_impact,
    count(*) FILTER (WHERE is_at_risk) AS at_risk,
    count(*) FILTER (WHERE is_at_risk AND is_rescheduled) AS rescheduled,
    count(*) FILTER (WHERE is_at_risk AND has_slipped) AS slipped,
    count(*) FILTER (WHERE is_due) AS due,
    count(*) FILTER (WHERE is_due AND is_rescheduled) AS rescheduled_due,
    count(*) FILTER (WHERE is_due AND is_rescheduled)
        / nullif(count(*) FILTER (WHERE is_due), 0) AS rescheduled_share
FROM (
    SELECT
        c.category_id,
        c.category,
        u.event_id IS NOT NULL AS is_upcoming,
        e.is_estimated,
        e.impact,
        _almanac.was_at_risk(v.status, v.latest, v.known_from) AS is_at_risk,
        is_at_risk AND coalesce(v.latest <= p.last_at, false) AS is_due,
        m.event_id IS NOT NULL AS is_rescheduled,
        coalesce(m.has_slipped, false) AS has_slipped
    FROM event_categories AS c
    JOIN events AS e ON e.event_id = c.event_id
    JOIN event_versions AS v
            ON v.event_id = c.event_id
            AND v.known_from = v.first_seen_at
            AND _almanac.was_known(v.known_from, v.known_to)
    CROSS JOIN (
        SELECT max(observed_at) AS last_at FROM coverage WHERE feed IN ('export', 'events')
    ) AS p
    LEFT JOIN upcoming_events AS u ON u.event_id = c.event_id
    LEFT JOIN (
        SELECT event_id, bool_or(kind = 'slipped') AS has_slipped
        FROM reschedules
        GROUP BY event_id
    ) AS m ON m.event_id = c.event_id
)
GROUP BY category
