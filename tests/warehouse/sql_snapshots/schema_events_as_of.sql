-- name: macro_versions_as_of
CREATE MACRO _almanac.versions_as_of(ts) AS TABLE
SELECT
    v.event_id,
    v.slug, v.title, v.description, v.displayed_date, v.date, v.date_end, v.date_type,
    v.is_estimated, v.categories, v.coins, v.impact, v.impact_band, v.impact_summary, v.source_url,
    v.snapshot_url, v.last_verified_at, v.created_at, v.updated_at, v.status, v.cancelled_at,
    v.date_precision, v.earliest, v.latest, v.displayed_date_full,
    v.first_seen_at,
    a.missing_since,
    v.known_from AS changed_at, v.version, v.unknown_fields, v.extra,
    _almanac.last_pull_at(ts) AS last_pull_at
FROM (
    SELECT * FROM event_versions WHERE known_to > _almanac.instant(ts)
    UNION ALL
    SELECT * FROM event_versions WHERE known_to IS NULL
) AS v
LEFT JOIN (
    SELECT event_id, arg_max_null(missing_since, changed_at) AS missing_since
    FROM event_absences
    WHERE changed_at <= _almanac.instant(ts)
    GROUP BY event_id
) AS a ON a.event_id = v.event_id
WHERE v.known_from <= _almanac.instant(ts)

-- name: macro_refusal_as_of
CREATE MACRO _almanac.refusal_as_of(ts, basis) AS TABLE
SELECT
    refusal AS event_id,
    TRY_CAST(refusal AS VARCHAR) AS slug,
    TRY_CAST(refusal AS VARCHAR) AS title,
    TRY_CAST(refusal AS VARCHAR) AS description,
    TRY_CAST(refusal AS VARCHAR) AS displayed_date,
    TRY_CAST(refusal AS TIMESTAMPTZ) AS date,
    TRY_CAST(refusal AS TIMESTAMPTZ) AS date_end,
    TRY_CAST(refusal AS VARCHAR) AS date_type,
    TRY_CAST(refusal AS BOOLEAN) AS is_estimated,
    TRY_CAST(refusal AS VARCHAR[]) AS categories,
    TRY_CAST(refusal AS VARCHAR[]) AS coins,
    TRY_CAST(refusal AS DOUBLE) AS impact,
    TRY_CAST(refusal AS VARCHAR) AS impact_band,
    TRY_CAST(refusal AS VARCHAR) AS impact_summary,
    TRY_CAST(refusal AS VARCHAR) AS source_url,
    TRY_CAST(refusal AS VARCHAR) AS snapshot_url,
    TRY_CAST(refusal AS TIMESTAMPTZ) AS last_verified_at,
    TRY_CAST(refusal AS TIMESTAMPTZ) AS created_at,
    TRY_CAST(refusal AS TIMESTAMPTZ) AS updated_at,
    TRY_CAST(refusal AS VARCHAR) AS status,
    TRY_CAST(refusal AS TIMESTAMPTZ) AS cancelled_at,
    TRY_CAST(refusal AS VARCHAR) AS date_precision,
    TRY_CAST(refusal AS TIMESTAMPTZ) AS earliest,
    TRY_CAST(refusal AS TIMESTAMPTZ) AS latest,
    TRY_CAST(refusal AS VARCHAR) AS displayed_date_full,
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
CREATE MACRO events_as_of(ts) AS TABLE (
    SELECT * FROM _almanac.versions_as_of(ts)
    UNION ALL
    SELECT * FROM _almanac.refusal_as_of(ts, 'observed')
), (ts, basis) AS TABLE (
    SELECT * FROM _almanac.versions_as_of(ts)
    UNION ALL
    SELECT
        event_id,
        slug, title, description, displayed_date, date, date_end, date_type, is_estimated,
        categories, coins, impact, impact_band, impact_summary, source_url, snapshot_url,
        last_verified_at, created_at, updated_at, status, cancelled_at,
        date_precision, earliest, latest, displayed_date_full,
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
