-- name: macro_known_before
CREATE MACRO known_before(lead) AS TABLE
SELECT
    v.event_id,
    v.slug, v.title, v.description, v.displayed_date, v.date, v.date_end, v.date_type,
    v.is_estimated, v.categories, v.coins, v.impact, v.impact_band, v.impact_summary, v.source_url,
    v.snapshot_url, v.last_verified_at, v.created_at, v.updated_at, v.status, v.cancelled_at,
    v.date_precision, v.earliest, v.latest, v.displayed_date_full,
    v.first_seen_at,
    a.missing_since,
    v.known_from AS changed_at, v.version, v.unknown_fields, v.extra,
    p.observed_at AS last_pull_at,
    e.known_at,
    e.date_final
FROM (
    SELECT
        event_id,
        date AS date_final,
        (
            (date AT TIME ZONE 'UTC')
            - coalesce(_almanac.span(lead), error('known_before: ' || CASE
                WHEN lead IS NULL THEN 'the interval is NULL'
                ELSE _almanac.no_span(lead)
            END))
        ) AT TIME ZONE 'UTC' AS known_at
    FROM events
    WHERE date_precision IN ('instant', 'day')
) AS e
JOIN event_versions AS v
    ON v.event_id = e.event_id
    AND v.known_from <= e.known_at
    AND (v.known_to > e.known_at OR v.known_to IS NULL)
ASOF JOIN (
    SELECT DISTINCT observed_at
    FROM batches
    WHERE status = 'merged' AND feed IN ('export', 'events', 'event', 'deliveries')
) AS p ON p.observed_at <= e.known_at
ASOF LEFT JOIN event_absences AS a
    ON a.event_id = e.event_id AND a.changed_at <= e.known_at
WHERE e.known_at <= (SELECT greatest(now(), last_at) FROM _almanac.first_look)
