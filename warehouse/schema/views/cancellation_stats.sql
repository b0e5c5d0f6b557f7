-- name: view_cancellation_stats
-- Grain: one row per category of any event; NULL for cancelled events that were never seen.
-- An event that was not over by the last complete pull is left out: it may have been cancelled since.
SELECT
    any_value(category_id) AS category_id,
    category,
    count(*) AS events,
    count(*) FILTER (WHERE is_at_risk) AS at_risk,
    count(*) FILTER (WHERE is_due) AS due,
    count(*) FILTER (WHERE is_due AND status = 'cancelled') AS cancelled,
    count(*) FILTER (WHERE is_due AND status = 'withdrawn') AS withdrawn,
    count(*) FILTER (WHERE is_due AND status = 'scheduled' AND missing_since IS NOT NULL) AS missing,
    count(*) FILTER (WHERE is_due AND status = 'cancelled')
        / nullif(count(*) FILTER (WHERE is_due), 0) AS share,
    count(*) FILTER (WHERE is_at_risk AND NOT is_due AND status = 'cancelled')
        AS cancelled_not_due,
    count(*) FILTER (WHERE NOT is_at_risk AND status = 'cancelled') AS cancelled_not_at_risk,
    count(*) FILTER (WHERE status = 'cancelled' AND first_status = 'cancelled') AS cancelled_unseen
FROM (
    SELECT *, is_at_risk AND first_latest <= last_at AS is_due
    FROM (
        SELECT
            c.category_id,
            c.category,
            e.status,
            e.missing_since,
            v.status AS first_status,
            v.latest AS first_latest,
            _almanac.was_at_risk(v.status, v.latest, v.known_from) AS is_at_risk
        FROM event_categories AS c
        JOIN events AS e ON e.event_id = c.event_id
        JOIN event_versions AS v
            ON v.event_id = c.event_id
            AND v.known_from = v.first_seen_at
            AND _almanac.was_known(v.known_from, v.known_to)
    )
    CROSS JOIN (SELECT max(observed_at) AS last_at FROM coverage WHERE feed IN ('export', 'events'))
)
GROUP BY category
UNION ALL
SELECT NULL, NULL, 0, 0, 0, 0, 0, 0, NULL, 0, 0, count(*)
FROM cancellations
ANTI JOIN events USING (event_id)
WHERE cancelled_at
    > (SELECT min(observed_at) AS first_at FROM coverage WHERE feed IN ('export', 'events'))
HAVING count(*) > 0
