-- name: macro_events_as_of
-- Grain: one row per event known at the instant `ts`, as it was known then.
-- Parameters: ts, an instant, or a date, timestamp or text, which are read as UTC where they name
-- no zone (macro_instant); basis, 'observed' or 'claimed' (which also takes event_claims).
-- Run twice: fails, since the macro is there; it is made once in a new file.
-- Four branches: versions that ended after ts; current versions; claimed ones; and the check of the
-- parameters, which returns no row. The first three compare columns with constants alone, so that a
-- scan can skip row groups. The check is a branch of its own, so that a filter of the caller can't skip it.
CREATE MACRO events_as_of(ts, basis := 'observed') AS TABLE
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
        SELECT CASE
            WHEN basis = 'claimed' AND ts IS NOT NULL THEN false
            WHEN basis = 'observed' AND first_at <= _almanac.instant(ts) THEN false
            ELSE error(
                'events_as_of: ' || CASE
                    WHEN ts IS NULL THEN 'the instant is NULL'
                    WHEN coalesce(basis NOT IN ('observed', 'claimed'), true)
                        THEN 'basis is ' || coalesce('''' || basis || '''', 'NULL')
                            || '; expected ''observed'' or ''claimed'''
                    WHEN first_at IS NULL
                        THEN 'no pull of events was merged yet, so nothing was known at any time'
                    ELSE ts || ' is before the first observation at '
                        || strftime(first_at AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%SZ')
                        || '; nothing was observed before it. Use basis := ''claimed'' for what '
                        || 'the service says about earlier times'
                END
            )
        END AS is_wrong
        FROM _almanac.first_look
    ) AS checked
WHERE checked.is_wrong
