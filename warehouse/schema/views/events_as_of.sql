-- name: macro_events_as_of
-- Grain: one row per event known at the instant `ts`, as it was known then.
-- Parameters: ts, an instant, or a date, timestamp or text, which are read as UTC where they name
-- no zone (macro_instant); basis, 'observed' or 'claimed' (which also takes event_claims).
-- Run twice: fails, since the macro is there; it is made once in a new file.
-- The versions: those that ended after ts; current ones; claimed ones. Each branch compares columns
-- with constants alone, so that a scan can skip row groups. What was missing then is joined to them
-- from the few changes of it. The check of the parameters returns no row; it is a branch of its own
-- beside the join without a constant, so that no filter of the caller can skip it.
CREATE MACRO events_as_of(ts, basis := 'observed') AS TABLE
SELECT
    v.event_id,
    {each content: v.@name},
    {each dating: v.@name},
    v.first_seen_at,
    a.missing_since,
    v.changed_at, v.version, v.unknown_fields, v.extra,
    (
        SELECT max(observed_at)
        FROM batches
        WHERE status = 'merged'
            AND feed IN ('export', 'events', 'event', 'deliveries')
            AND observed_at <= _almanac.instant(ts)
    ) AS last_pull_at
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
) AS v
LEFT JOIN (
    SELECT event_id, arg_max_null(missing_since, changed_at) AS missing_since
    FROM event_absences
    WHERE changed_at <= _almanac.instant(ts)
    GROUP BY event_id
) AS a ON a.event_id = v.event_id
UNION ALL
SELECT
    event_id,
    {each content: @name},
    {each dating: @name},
    first_seen_at,
    CASE WHEN checked.is_wrong THEN known_from END,
    known_from, version, unknown_fields, extra,
    CASE WHEN checked.is_wrong THEN known_from END
FROM event_versions,
    (
        SELECT CASE WHEN basis IN ('observed', 'claimed')
            THEN _almanac.refused(
                'events_as_of', 'events', ts,
                CASE basis WHEN 'observed' THEN first_at ELSE '-infinity' END, last_at,
                '. Use basis := ''claimed'' for what the service says about earlier times'
            )
            ELSE error(
                'events_as_of: basis is ' || coalesce('''' || basis || '''', 'NULL')
                || '; expected ''observed'' or ''claimed'''
            )
        END AS is_wrong
        FROM _almanac.first_look
    ) AS checked
WHERE checked.is_wrong
