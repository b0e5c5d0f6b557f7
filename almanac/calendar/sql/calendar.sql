-- The events of a calendar, each with the days or instants at which a calendar shows it.
--
--     events_as_of ─▶ known ─┬─▶ calendar_events
--     event_absences ────────┤
--     removed_versions ──────┘

-- name: calendar_events
-- Grain: one row per event known at $at that has a date and passes the filters, as it was known then;
-- at most $limit rows, by date. `total` is the number without the limit.
-- An exact instant has starts_at and ends_at (NULL without an end, or if it is in the same second); any other event has first_day and
-- end_day, exclusive. A period or a deadline is shown on its last day, and is_exact is false.
-- changed_at is the start of the version, or the last start or end of an absence if that is later.
-- removed are the starts of versions that were published and then removed by a refold; NULL is none.
-- Parameters: $at; $coins, $categories, $min_impact, $bands, $lower, $upper, $lower_day and $upper_day
-- as in events; $event_ids, a list or NULL; $estimated, whether to include dates that are not exact;
-- $cancelled, whether to include cancelled and withdrawn events; $limit. Run twice: the same rows.
WITH known AS (
    SELECT
        *,
        date_precision IN ('instant', 'day') AS is_exact,
        _almanac.day_of(CASE
            WHEN date_precision IN ('instant', 'day') THEN date
            ELSE _almanac.begins_by(date, date_precision, earliest) - INTERVAL 1 MICROSECOND
        END) AS first_day
    FROM events_as_of($at::TIMESTAMPTZ)
    WHERE date_precision IS NOT NULL
        AND ($event_ids::VARCHAR[] IS NULL OR list_contains($event_ids::VARCHAR[], event_id))
        AND ($coins::VARCHAR[] IS NULL OR list_has_any(coins, $coins::VARCHAR[]))
        AND {shared has_category}
        AND {shared in_window}
        AND {shared has_impact}
        AND ($cancelled OR status = 'scheduled')
        AND ($estimated OR date_precision IN ('instant', 'day'))
)
SELECT
    k.event_id, k.title, k.description, k.displayed_date_full, k.is_exact,
    CASE WHEN k.date_precision = 'instant' THEN k.date END AS starts_at,
    CASE
        WHEN k.date_precision = 'instant' AND date_trunc('second', k.date_end) > k.date THEN
            CASE WHEN epoch_us(k.date_end) % 86400000000 = 0 THEN k.latest ELSE k.date_end END
    END AS ends_at,
    k.first_day,
    CASE
        WHEN k.date_precision = 'day' THEN _almanac.day_of(k.latest - INTERVAL 1 MICROSECOND)
        ELSE k.first_day
    END + 1 AS end_day,
    k.status, k.cancelled_at, k.missing_since,
    k.coins, k.categories, k.impact, k.impact_band, k.source_url, k.unknown_fields,
    k.first_seen_at, k.changed_at AS version_from, k.version,
    greatest(k.changed_at, a.changed_at) AS changed_at, r.removed,
    count(*) OVER () AS total
FROM known AS k
LEFT JOIN (
    SELECT event_id, max(changed_at) AS changed_at
    FROM event_absences
    WHERE changed_at <= $at::TIMESTAMPTZ
    GROUP BY event_id
) AS a ON a.event_id = k.event_id
LEFT JOIN (
    SELECT event_id, list(known_from) AS removed
    FROM state.removed_versions
    WHERE known_from <= $at::TIMESTAMPTZ
    GROUP BY event_id
) AS r ON r.event_id = k.event_id
ORDER BY k.first_day, starts_at NULLS FIRST, k.event_id
LIMIT $limit

-- name: calendar_coins
-- Grain: one row per coin of the list, with its ticker and name.
-- Parameters: $slugs. Run twice: the same rows.
SELECT slug, symbol, name FROM coins WHERE slug IN (SELECT unnest($slugs::VARCHAR[]))

-- name: calendar_categories
-- Grain: one row per category of an event known at $at.
-- Parameters: $at. Run twice: the same rows.
SELECT DISTINCT unnest(categories) AS category
FROM event_versions
WHERE known_from <= $at::TIMESTAMPTZ
ORDER BY category

-- name: knowledge
-- Grain: one row, the newest version and the newest change of an absence at $at; NULL if there is none.
-- Parameters: $at. Run twice: the same row.
SELECT
    (SELECT max(known_from) FROM event_versions WHERE known_from <= $at::TIMESTAMPTZ) AS version_from,
    (SELECT max(changed_at) FROM event_absences WHERE changed_at <= $at::TIMESTAMPTZ) AS absence_from
