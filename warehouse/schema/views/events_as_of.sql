-- name: macro_events_as_of
-- Grain: one row per event known at the instant `ts`, as it was known then.
-- Parameters: ts, an instant, or a date, timestamp or text, which are read as UTC where they name
-- no zone (macro_instant); basis, 'observed' or 'claimed' (which also takes event_claims).
-- Run twice: fails, since the macro is there; it is made once in a new file.
-- The versions: those that ended after ts; current ones; claimed ones; and the check of the
-- parameters, which returns no row. The first three compare columns with constants alone, so that a
-- scan can skip row groups. The check is a branch of its own, so that a filter of the caller can't
-- skip it. For the same reason two columns are bound to the branches, by a CASE that is always true
-- and a nullif that is always NULL: a filter on them would else be applied before the check.
-- An event was missing then if the last change until then has missing_since = changed_at. No
-- condition but the key restricts that join, so that DuckDB leaves it out of a query that does not
-- read the column and aggregates.
CREATE MACRO events_as_of(ts, basis := 'observed') AS TABLE
SELECT
    v.event_id,
    {each content: v.@name},
    {each dating: v.@name},
    v.first_seen_at,
    coalesce(a.missing_since, nullif(v.changed_at, v.changed_at)) AS missing_since,
    v.changed_at, v.version, v.unknown_fields, v.extra,
    v.last_pull_at
FROM (
    SELECT *, CASE WHEN version IS NOT NULL THEN (
        SELECT max(observed_at)
        FROM batches
        WHERE status = 'merged'
            AND feed IN ('export', 'events', 'event', 'deliveries')
            AND observed_at <= _almanac.instant(ts)
    ) END AS last_pull_at
    FROM (
    SELECT
        event_id,
        {each content: @name},
        {each dating: @name},
        first_seen_at,
        known_from AS changed_at, version, unknown_fields, extra
    FROM event_versions
    WHERE known_from <= _almanac.instant(ts)
        AND known_to > _almanac.instant(ts)
    UNION ALL
    SELECT
        event_id,
        {each content: @name},
        {each dating: @name},
        first_seen_at,
        known_from, version, unknown_fields, extra
    FROM event_versions
    WHERE known_from <= _almanac.instant(ts)
        AND known_to IS NULL
    UNION ALL
    SELECT
        event_id,
        {each content: @name},
        {each dating: @name},
        first_seen_at,
        known_from, version, unknown_fields, extra
    FROM event_claims
    WHERE known_from <= _almanac.instant(ts)
        AND known_to > _almanac.instant(ts)
        AND basis = 'claimed'
    UNION ALL
    SELECT
        event_id,
        {each content: @name},
        {each dating: @name},
        first_seen_at,
        known_from, version, unknown_fields, extra
    FROM event_versions,
        (
            SELECT CASE basis
                WHEN 'observed' THEN _almanac.refused(
                    'events_as_of', 'events', ts, first_at, last_at,
                    '. Use basis := ''claimed'' for what the service says about earlier times'
                )
                WHEN 'claimed'
                    THEN _almanac.refused('events_as_of', 'events', ts, '-infinity', last_at, '')
                ELSE error(
                    'events_as_of: basis is ' || coalesce('''' || basis || '''', 'NULL')
                    || '; expected ''observed'' or ''claimed'''
                )
            END AS is_wrong
            FROM _almanac.first_look
        ) AS checked
    WHERE checked.is_wrong
    ) AS known
) AS v
LEFT JOIN (
    SELECT
        event_id,
        CASE
            WHEN max(missing_since) FILTER (changed_at <= _almanac.instant(ts))
                = max(changed_at) FILTER (changed_at <= _almanac.instant(ts))
                THEN max(missing_since) FILTER (changed_at <= _almanac.instant(ts))
        END AS missing_since
    FROM event_absences
    GROUP BY event_id
) AS a ON a.event_id = v.event_id
