-- The events of a study, as they were known at entry.
--
--     event_versions, event_claims ─▶ (date less the lead) ─▶ study_events ─▶ rows by event and coin

-- name: study_events
-- Grain: one row per event that has a version that passes the filters. An event enters once, by the
-- version that was known at the entry of that version, its date less $lead; the first such entry
-- counts. `reason` is NULL then; else it says why no version is one, by the version that came closest.
-- Parameters: $lead, an interval; $basis; $coins, $categories (names in small letters), lists,
-- categories may be NULL; $min_impact, and $bands, the bands that lie above it as a whole;
-- $precisions, a list; $now, the instant of the newest knowledge; $lower and $upper, the span of the
-- prices. Run twice: the same rows.
WITH versions AS (
    SELECT
        event_id, version, known_from, known_to, known_basis, title, date, date_precision, status,
        categories, coins, impact, impact_band
    FROM event_versions
    WHERE known_from IS DISTINCT FROM known_to
    UNION ALL
    SELECT
        event_id, version, known_from, known_to, known_basis, title, date, date_precision, status,
        categories, coins, impact, impact_band
    FROM event_claims
    WHERE $basis = 'claimed' AND known_from IS DISTINCT FROM known_to
),
dated AS (
    SELECT
        *,
        list_contains($precisions::VARCHAR[], date_precision) AS is_dated,
        ((date AT TIME ZONE 'UTC') - $lead::INTERVAL) AT TIME ZONE 'UTC' AS entry
    FROM versions
    WHERE date BETWEEN $lower::TIMESTAMPTZ AND $upper::TIMESTAMPTZ
        AND {shared_has_filters}
),
absences AS (
    SELECT event_id, changed_at, max(missing_since) AS missing_since
    FROM event_absences
    GROUP BY event_id, changed_at
),
judged AS (
    SELECT
        d.*,
        CASE
            WHEN NOT d.is_dated THEN 'date_not_exact'
            WHEN d.known_from >= d.date THEN 'known_after_the_date'
            WHEN d.known_from > d.entry THEN 'known_too_late'
            WHEN d.entry > $now::TIMESTAMPTZ THEN 'entry_to_come'
            WHEN d.known_to <= d.entry THEN 'changed_before_entry'
            WHEN d.status = 'cancelled' THEN 'cancelled_at_entry'
            WHEN d.status = 'withdrawn' THEN 'withdrawn_at_entry'
            WHEN a.missing_since IS NOT NULL THEN 'missing_at_entry'
        END AS reason
    FROM dated AS d
    ASOF LEFT JOIN absences AS a ON a.event_id = d.event_id AND a.changed_at <= d.entry
),
chosen AS (
    SELECT *
    FROM judged
    QUALIFY row_number() OVER (
        PARTITION BY event_id
        ORDER BY
            coalesce(
                list_position(
                    [
                        'cancelled_at_entry', 'withdrawn_at_entry', 'missing_at_entry',
                        'known_too_late', 'known_after_the_date', 'date_not_exact',
                        'entry_to_come', 'changed_before_entry'
                    ],
                    reason
                ),
                0
            ),
            entry,
            version
    ) = 1
)
SELECT
    c.event_id, c.title, c.date, c.entry, c.known_from, c.known_basis, c.version, c.reason,
    c.categories, c.coins, c.impact, c.impact_band,
    e.date AS date_final,
    e.date_precision IN ('instant', 'day') AS is_exact_final,
    e.status AS status_final
FROM chosen AS c
JOIN events AS e USING (event_id)
ORDER BY c.entry, c.event_id

-- name: study_events_today
-- Grain: one row per event that is scheduled today and passes the filters today, with its date as it
-- is today, exact or not: what a study reads that knows of no history.
-- Parameters: as study_events, without $lead, $basis, $precisions and $now. Run twice: the same rows.
SELECT
    event_id, title, date, date AS entry, known_from, 'today' AS known_basis, version,
    NULL::VARCHAR AS reason, categories, coins, impact, impact_band,
    date AS date_final, TRUE AS is_exact_final, status AS status_final
FROM (SELECT e.*, e.changed_at AS known_from FROM events AS e)
WHERE status = 'scheduled'
    AND date BETWEEN $lower::TIMESTAMPTZ AND $upper::TIMESTAMPTZ
    AND {shared_has_filters}
ORDER BY date, event_id
