-- The events of a calendar, each with the days or instants at which a calendar shows it.
--
--     event_versions ─▶ calendar_known ─┐
--     event_absences ───────────────────┼─▶ calendar_events
--     removed_versions ─────────────────┘

-- name: calendar_known
-- Grain: one row per event known at $at that has a date and passes the filters, as it was known then.
-- first_day is its day; of a period or a deadline the last, and is_exact is false.
-- The versions are read without events_as_of, whose plan takes longer than the answer. The second
-- comparison of `latest` is implied by the window; a scan can skip rows by it.
-- Parameters: $at; $coins, $categories, $min_impact, $bands, $lower, $upper, $lower_day and $upper_day
-- as in events; $words, a part of the title in small letters, or NULL; $event_ids, a list or NULL;
-- $estimated: include, drop or only dates that are not exact; $cancelled, whether to include cancelled
-- and withdrawn events. Run twice: the same rows.
SELECT
    *,
    date_precision IN ('instant', 'day') AS is_exact,
    _almanac.day_of(CASE
        WHEN date_precision IN ('instant', 'day') THEN date
        ELSE _almanac.begins_by(date, date_precision, earliest) - INTERVAL 1 MICROSECOND
    END) AS first_day
FROM event_versions
WHERE known_from <= $at::TIMESTAMPTZ
    AND (known_to > $at::TIMESTAMPTZ OR known_to IS NULL)
    AND date_precision IS NOT NULL
    AND ($event_ids::VARCHAR[] IS NULL OR list_contains($event_ids::VARCHAR[], event_id))
    AND {shared_has_coin}
    AND ($words::VARCHAR IS NULL OR contains(lower(title), $words::VARCHAR))
    AND {shared_has_category}
    AND {shared_in_window}
    AND latest > coalesce(least($lower::TIMESTAMPTZ, $lower_day::TIMESTAMPTZ), '-infinity')
    AND {shared_has_impact}
    AND ($cancelled OR status = 'scheduled')
    AND ($estimated = 'include' OR ($estimated = 'drop') = is_exact)

-- name: calendar_events
-- Grain: one row per row of calendar_known (`known`); at most $limit rows, by date. `total` is the
-- number without the limit.
-- An exact instant has starts_at and ends_at (NULL without an end, or if it is in the same second); any
-- other event has first_day and end_day, exclusive.
-- changed_at is the start of the version, or the last start or end of an absence if that is later.
-- removed are the starts of versions that were published and then removed by a refold; NULL is none.
-- Parameters: $at, $limit. Run twice: the same rows.
SELECT
    event_id, title, description, displayed_date_full, is_exact,
    CASE WHEN date_precision = 'instant' THEN date END AS starts_at,
    CASE
        WHEN date_precision = 'instant' AND date_trunc('second', date_end) > date THEN
            CASE WHEN epoch_us(date_end) % 86400000000 = 0 THEN latest ELSE date_end END
    END AS ends_at,
    first_day,
    CASE
        WHEN date_precision = 'day' THEN _almanac.day_of(latest - INTERVAL 1 MICROSECOND)
        ELSE first_day
    END + 1 AS end_day,
    status, cancelled_at, missing_since,
    coins, categories, impact, impact_band, source_url, unknown_fields,
    first_seen_at, known_from AS version_from, version,
    greatest(known_from, absence_at) AS changed_at, removed,
    count(*) OVER () AS total
FROM known
LEFT JOIN (
    SELECT
        event_id, max(changed_at) AS absence_at,
        arg_max_null(missing_since, changed_at) AS missing_since
    FROM event_absences
    WHERE changed_at <= $at::TIMESTAMPTZ
    GROUP BY event_id
) AS absences USING (event_id)
LEFT JOIN (
    SELECT event_id, list(known_from) AS removed
    FROM state.removed_versions
    WHERE known_from <= $at::TIMESTAMPTZ
    GROUP BY event_id
) AS removals USING (event_id)
ORDER BY first_day, starts_at NULLS FIRST, event_id
LIMIT $limit

-- name: calendar_coins
-- Grain: one row per coin of the list, with its ticker and name.
-- Parameters: $slugs. Run twice: the same rows.
SELECT slug, symbol, name FROM coins WHERE slug IN (SELECT unnest($slugs::VARCHAR[]))
