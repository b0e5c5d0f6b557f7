-- Events as they were known at an instant.
--
--     versions_as_of ─┐
--     event_claims ───┼─▶ events_as_of
--     refusal_as_of ──┘

-- name: macro_last_pull_at
-- Grain: a macro of one value, the last pull of events at or before the instant `ts`; NULL if there
-- was none.
-- Parameters: ts, as in events_as_of.
CREATE MACRO _almanac.last_pull_at(ts) AS (
    SELECT max(observed_at)
    FROM batches
    WHERE status = 'merged'
        AND feed IN ('export', 'events', 'event', 'deliveries')
        AND observed_at <= _almanac.instant(ts)
)

-- name: macro_absences_as_of
-- Grain: one row per event that was ever missing by the instant `ts`, with what was known of it then.
-- Parameters: ts, as in events_as_of.
CREATE MACRO _almanac.absences_as_of(ts) AS TABLE
SELECT event_id, arg_max_null(missing_since, changed_at) AS missing_since
FROM event_absences
WHERE changed_at <= _almanac.instant(ts)
GROUP BY event_id

-- name: macro_versions_as_of
-- Grain: one row per event observed by the instant `ts`, as it was known then.
-- Parameters: ts, as in events_as_of.
-- Columns are compared with constants alone, so that a scan can skip row groups. What was missing then
-- is joined from the few changes of it.
CREATE MACRO _almanac.versions_as_of(ts) AS TABLE
SELECT
    v.event_id,
    {each content: v.@name},
    {each dating: v.@name},
    v.first_seen_at,
    a.missing_since,
    v.known_from AS changed_at, v.version, v.unknown_fields, v.extra,
    _almanac.last_pull_at(ts) AS last_pull_at
FROM event_versions AS v
LEFT JOIN _almanac.absences_as_of(ts) AS a ON a.event_id = v.event_id
WHERE v.known_from <= _almanac.instant(ts)
    AND (v.known_to > _almanac.instant(ts) OR v.known_to IS NULL)

-- name: macro_refusal_as_of
-- Grain: no row; an error for parameters of events_as_of that have no answer.
-- Parameters: ts and basis, as in events_as_of.
-- Each column is made from the check, so that no filter of the caller can skip it. The planner knows
-- the values of a CASE, but not those of a hash.
CREATE MACRO _almanac.refusal_as_of(ts, basis) AS TABLE
SELECT
    refusal AS event_id,
    {each content: TRY_CAST(refusal AS @type) AS @name},
    {each dating: TRY_CAST(refusal AS @type) AS @name},
    TRY_CAST(refusal AS TIMESTAMPTZ) AS first_seen_at,
    TRY_CAST(refusal AS TIMESTAMPTZ) AS missing_since,
    TRY_CAST(refusal AS TIMESTAMPTZ) AS changed_at,
    TRY_CAST(refusal AS INTEGER) AS version,
    TRY_CAST(refusal AS VARCHAR[]) AS unknown_fields,
    TRY_CAST(refusal AS JSON) AS extra,
    TRY_CAST(refusal AS TIMESTAMPTZ) AS last_pull_at
FROM (
    SELECT md5(CASE
        WHEN (basis IN ('observed', 'claimed')) IS NOT TRUE THEN error(
            'events_as_of: basis is ' || coalesce('''' || basis || '''', 'NULL')
            || '; expected ''observed'' or ''claimed'''
        )
        WHEN _almanac.refused(
            'events_as_of', 'events', ts, moment,
            CASE basis WHEN 'observed' THEN first_at ELSE '-infinity' END, last_at,
            '. Use basis := ''claimed'' for what the service says about earlier times'
        )
            THEN ''
    END) AS refusal
    FROM (SELECT *, _almanac.instant(ts) AS moment FROM _almanac.first_look)
)
WHERE refusal IS NOT NULL

-- name: macro_events_as_of
-- Grain: one row per event known at the instant `ts`, as it was known then.
-- Parameters: ts, an instant, or a date, timestamp or text, which are read as UTC where they name
-- no zone (macro_instant); basis, 'observed' or 'claimed' (which also takes event_claims).
-- The form with a basis is apart: to plan the view of claims takes longer than most questions.
CREATE MACRO events_as_of(ts) AS TABLE (
    SELECT * FROM _almanac.versions_as_of(ts)
    UNION ALL
    SELECT * FROM _almanac.refusal_as_of(ts, 'observed')
), (ts, basis) AS TABLE (
    SELECT * FROM _almanac.versions_as_of(ts)
    UNION ALL
    SELECT
        event_id,
        {each content: @name},
        {each dating: @name},
        first_seen_at,
        NULL,
        known_from, version, unknown_fields, extra,
        _almanac.last_pull_at(ts)
    FROM event_claims
    WHERE known_from <= _almanac.instant(ts)
        AND known_to > _almanac.instant(ts)
        AND basis = 'claimed'
    UNION ALL
    SELECT * FROM _almanac.refusal_as_of(ts, basis)
)
