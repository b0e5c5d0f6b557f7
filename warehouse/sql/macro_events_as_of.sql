-- Grain: one row per event known at the instant `ts`, as it was known then.
-- Parameters: ts, an instant, or a date, timestamp or text, which are read as UTC whatever the
-- session's zone; basis, 'observed' or 'claimed' (which also takes version 0).
-- Run twice: fails, since the macro is there; it is made once in a new file.
-- Three branches: ended after ts; still current; and, never with a row, the check. The first two
-- compare columns with constants alone, so that a scan skips what it need not read; the check
-- stands apart, so that no filter of the reader's can keep it from being made.
CREATE MACRO events_as_of(ts, basis := 'observed') AS TABLE
SELECT
    event_id, slug, title, description, displayed_date, date, date_end, date_type, is_estimated,
    categories, coins, impact, impact_band, impact_summary, source_url, snapshot_url,
    last_verified_at, created_at, updated_at, status, cancelled_at, first_seen_at,
    known_from AS changed_at, version, unknown_fields, extra
FROM event_versions
WHERE known_from <= CASE typeof(ts)
        WHEN 'TIMESTAMP WITH TIME ZONE' THEN ts::TIMESTAMPTZ
        ELSE ts::TIMESTAMP AT TIME ZONE 'UTC' END
    AND known_to > CASE typeof(ts)
        WHEN 'TIMESTAMP WITH TIME ZONE' THEN ts::TIMESTAMPTZ
        ELSE ts::TIMESTAMP AT TIME ZONE 'UTC' END
    AND (basis = 'claimed' OR (basis = 'observed' AND known_basis = 'observed'))
UNION ALL
SELECT
    event_id, slug, title, description, displayed_date, date, date_end, date_type, is_estimated,
    categories, coins, impact, impact_band, impact_summary, source_url, snapshot_url,
    last_verified_at, created_at, updated_at, status, cancelled_at, first_seen_at,
    known_from, version, unknown_fields, extra
FROM event_versions
WHERE known_from <= CASE typeof(ts)
        WHEN 'TIMESTAMP WITH TIME ZONE' THEN ts::TIMESTAMPTZ
        ELSE ts::TIMESTAMP AT TIME ZONE 'UTC' END
    AND known_to IS NULL
    AND (basis = 'claimed' OR (basis = 'observed' AND known_basis = 'observed'))
UNION ALL
SELECT
    event_id, slug, title, description, displayed_date, date, date_end, date_type, is_estimated,
    categories, coins, impact, impact_band, impact_summary, source_url, snapshot_url,
    last_verified_at, created_at, updated_at, status, cancelled_at, first_seen_at,
    known_from, version, unknown_fields, extra
FROM event_versions,
    (
        SELECT CASE
            WHEN ts IS NULL THEN error('events_as_of: the instant is NULL')
            WHEN coalesce(basis NOT IN ('observed', 'claimed'), true) THEN error(
                'events_as_of: basis is ' || coalesce('''' || basis || '''', 'NULL')
                || '; expected ''observed'' or ''claimed'''
            )
            WHEN basis = 'claimed' THEN false
            WHEN look.first_at IS NULL THEN error(
                'events_as_of: no look at events was merged yet, so nothing was known at any time'
            )
            WHEN look.first_at > CASE typeof(ts)
                    WHEN 'TIMESTAMP WITH TIME ZONE' THEN ts::TIMESTAMPTZ
                    ELSE ts::TIMESTAMP AT TIME ZONE 'UTC' END
                THEN error(
                    'events_as_of: ' || ts || ' is before the first look at '
                    || strftime(look.first_at AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%SZ')
                    || '; what was known then was not observed. With basis := ''claimed'' it goes '
                    || 'further back, by what the service says of that time'
                )
            ELSE false
        END AS is_wrong
        FROM (
            SELECT min(observed_at) AS first_at
            FROM batches
            WHERE status = 'merged' AND feed IN ('export', 'events', 'event', 'deliveries')
        ) AS look
    ) AS checked
WHERE checked.is_wrong
