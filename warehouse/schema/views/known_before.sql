-- name: macro_known_before
-- Grain: one row per event whose last known date is exact, as it was known a time before that date.
-- An event that was not known then is absent: also if nothing was pulled yet, and if the instant is
-- still to come.
-- Parameters: lead, an INTERVAL, or a text that is one; days and months are those of UTC.
CREATE MACRO known_before(lead) AS TABLE
SELECT
    v.event_id,
    {each content: v.@name},
    {each dating: v.@name},
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
