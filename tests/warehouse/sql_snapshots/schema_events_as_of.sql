-- name: macro_events_as_of
CREATE MACRO events_as_of(ts, basis := 'observed') AS TABLE
SELECT
    v.event_id,
    v.slug, v.title, v.description, v.displayed_date, v.date, v.date_end, v.date_type,
    v.is_estimated, v.categories, v.coins, v.impact, v.impact_band, v.impact_summary, v.source_url,
    v.snapshot_url, v.last_verified_at, v.created_at, v.updated_at, v.status, v.cancelled_at,
    v.date_precision, v.earliest, v.latest, v.displayed_date_full,
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
        slug, title, description, displayed_date, date, date_end, date_type, is_estimated,
        categories, coins, impact, impact_band, impact_summary, source_url, snapshot_url,
        last_verified_at, created_at, updated_at, status, cancelled_at,
        date_precision, earliest, latest, displayed_date_full,
        first_seen_at,
        known_from AS changed_at, version, unknown_fields, extra
    FROM event_versions
    WHERE known_from <= _almanac.instant(ts)
        AND known_to > _almanac.instant(ts)
    UNION ALL
    SELECT
        event_id,
        slug, title, description, displayed_date, date, date_end, date_type, is_estimated,
        categories, coins, impact, impact_band, impact_summary, source_url, snapshot_url,
        last_verified_at, created_at, updated_at, status, cancelled_at,
        date_precision, earliest, latest, displayed_date_full,
        first_seen_at,
        known_from, version, unknown_fields, extra
    FROM event_versions
    WHERE known_from <= _almanac.instant(ts)
        AND known_to IS NULL
    UNION ALL
    SELECT
        event_id,
        slug, title, description, displayed_date, date, date_end, date_type, is_estimated,
        categories, coins, impact, impact_band, impact_summary, source_url, snapshot_url,
        last_verified_at, created_at, updated_at, status, cancelled_at,
        date_precision, earliest, latest, displayed_date_full,
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
    slug, title, description, displayed_date, date, date_end, date_type, is_estimated, categories,
    coins, impact, impact_band, impact_summary, source_url, snapshot_url, last_verified_at,
    created_at, updated_at, status, cancelled_at,
    date_precision, earliest, latest, displayed_date_full,
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
