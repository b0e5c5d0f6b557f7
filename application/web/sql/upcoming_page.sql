-- The list of events, the calendar of their days, and the names of coins and categories.

-- name: list_events
-- Grain: one row per event of a page that may take place in some days: exact dates first,
-- of these the ones that began before at the end, and of a day those that left it; other dates by precision, and of each precision by
-- impact. An event that left this time after $since has a row, too: `gone` is cancelled, withdrawn,
-- missing or moved, the last with its former date; of events that are over, each that was cancelled.
-- `place` counts the rows of a kind, exact or not, `places` is their number, and `total` the number of
-- those that are not gone.
-- Parameters: $at, $since; of in_days; $days and $midnights from $starts on; of has_filters; $is_exact, the kind of
-- dates, or NULL for both; $by_impact, whether exact dates are by impact, not by time; $folds, whether
-- those that are over come first; $exact_from, $exact_to, $open_from, $open_to, places of each kind.
-- Run twice: the same rows.
SELECT
    event_id, version, title, coins, categories, impact, impact_band, impact_step, source_url,
    displayed_date_full, date_precision, is_exact, earliest, latest, new_date, new_at, moved_at,
    moved_from, left_at,
    if(is_former, coalesce(gone, 'moved'), gone) AS gone, is_exact AND day IS NULL AS is_before,
    row_number() OVER (
        PARTITION BY is_exact
        ORDER BY
            $folds AND latest > $at::TIMESTAMPTZ,
            NOT $by_impact AND is_before,
            CASE WHEN is_exact AND NOT $by_impact THEN day END,
            gone IS NOT NULL OR is_former,
            list_position(['month', 'quarter', 'year', 'deadline'], date_precision),
            CASE WHEN $by_impact OR NOT is_exact THEN coalesce(impact, impact_step * 2.5 - 2.5) END
                DESC NULLS LAST,
            if(is_exact, earliest, latest), earliest, event_id
    ) AS place,
    count(*) OVER (PARTITION BY is_exact) AS places,
    sum((gone IS NULL AND NOT is_former)::INTEGER) OVER (PARTITION BY is_exact) AS total
FROM (
    FROM page_events
    WHERE {in_days}
        AND ($is_exact::BOOLEAN IS NULL OR is_exact = $is_exact::BOOLEAN)
        AND CASE
            WHEN is_former THEN moved_at > $since::TIMESTAMPTZ AND coalesce(
                new_may_begin >= if(new_precision = 'instant', $ends::TIMESTAMPTZ, $day_ends)
                OR new_latest <= if(new_precision = 'instant', $starts::TIMESTAMPTZ, $day_starts),
                true
            )
            ELSE gone IS NULL OR left_at > $since::TIMESTAMPTZ OR latest <= $at::TIMESTAMPTZ
        END
        AND {has_filters}
) AS e
ASOF LEFT JOIN ({zone_days}) AS d ON d.is_instant = (e.date_precision = 'instant') AND e.earliest >= d.begins
QUALIFY place BETWEEN if(is_exact, $exact_from, $open_from) AND if(is_exact, $exact_to, $open_to)
ORDER BY is_exact DESC, place

-- name: head_line
-- Grain: one row: the next event of High or Critical impact with an exact date after $at, NULL if there
-- is none, and the number of critical ones that list_events counts in some days.
-- Parameters: $at; of in_days and has_filters. Run twice: the same row.
SELECT
    arg_min(
        {
            'event_id': event_id, 'title': title, 'coins': coins, 'source_url': source_url,
            'date_precision': date_precision, 'earliest': earliest
        },
        (earliest, event_id)
    ) FILTER (WHERE earliest > $at::TIMESTAMPTZ) AS next_event,
    count(*) FILTER (WHERE impact_step = 4 AND {in_days}) AS critical
FROM page_events
WHERE is_exact
    AND gone IS NULL
    AND NOT is_former
    AND impact_step >= 3
    AND latest > least($starts::TIMESTAMPTZ, $day_starts::TIMESTAMPTZ)
    AND {has_filters}

-- name: list_days
-- Grain: one row per day of $days on which events with an exact date begin, with
-- their number by step of impact, the highest first, and the $most events of the highest impact. The
-- day NULL has the number of events that may take place in this time without an exact date.
-- Parameters: $days, $midnights, $most; of in_days and has_filters. Run twice: the same rows.
SELECT
    CASE WHEN is_exact THEN d.day END AS day,
    count(*) AS events,
    [
        count(*) FILTER (WHERE impact_step = 4), count(*) FILTER (WHERE impact_step = 3),
        count(*) FILTER (WHERE impact_step = 2), count(*) FILTER (WHERE impact_step = 1)
    ] AS steps,
    list(
        {
            'event_id': event_id, 'title': title, 'coins': coins,
            'source_url': source_url,
            'impact_step': impact_step,
            'date_precision': date_precision,
            'displayed_date_full': displayed_date_full,
            'gone': gone,
            'earliest': earliest,
            'latest': latest
        }
        ORDER BY coalesce(impact, impact_step * 2.5 - 2.5) DESC NULLS LAST, earliest, event_id
    )[:$most] AS first_events
FROM (FROM page_events WHERE gone IS NULL AND NOT is_former AND {in_days} AND {has_filters}) AS e
ASOF LEFT JOIN ({zone_days}) AS d ON d.is_instant = (e.date_precision = 'instant') AND e.earliest >= d.begins
WHERE NOT is_exact OR d.day IS NOT NULL
GROUP BY ALL
ORDER BY day

-- name: count_heat
-- Grain: one row per day of $days, 13 weeks, on which events of High or Critical impact begin, with
-- their number; and one per week in which others may take place without an exact date.
-- Parameters: $days, $midnights; of in_days and has_filters. Run twice: the same rows.
WITH found AS (
    SELECT is_exact, date_precision, earliest, may_begin, latest
    FROM page_events
    WHERE impact_step >= 3 AND gone IS NULL AND NOT is_former AND {in_days} AND {has_filters}
)
SELECT d.day, NULL::DATE AS week, count(*) AS events
FROM (FROM found WHERE is_exact) AS e
ASOF JOIN ({zone_days}) AS d ON d.is_instant = (e.date_precision = 'instant') AND e.earliest >= d.begins
GROUP BY d.day
UNION ALL
SELECT NULL, (week AT TIME ZONE 'UTC')::DATE, count(*)
FROM found, unnest(
    list_transform(range(13), lambda n: $day_starts::TIMESTAMPTZ + to_hours(n * 168))
) AS weeks (week)
WHERE NOT is_exact AND may_begin < week + INTERVAL 168 HOURS AND latest > week
GROUP BY week
ORDER BY day, week

-- name: list_dates
-- Grain: one row per version of the events $ids that was known at $at, oldest first.
-- Parameters: $ids, $at. Run twice: the same rows.
SELECT
    event_id, known_from, earliest, latest, date_precision, displayed_date_full, status
FROM event_versions
WHERE event_id IN (SELECT unnest($ids::VARCHAR[])) AND known_from <= $at::TIMESTAMPTZ
ORDER BY event_id, version

-- name: known_categories
-- Grain: one row per category, with the time from which it is known: listed, or of a version.
-- Parameters: none. Run twice: the same rows.
SELECT category, min(known_from) AS known_from
FROM (
    SELECT name AS category, first_seen_at AS known_from FROM categories
    UNION ALL
    SELECT unnest(categories), known_from FROM event_versions
)
WHERE category <> ''
GROUP BY category
ORDER BY category

-- name: coin_names
-- Grain: one row per coin, with its current symbol and name. `is_shared` says that another coin has
-- the same symbol. Parameters: none. Run twice: the same rows.
SELECT slug AS coin, symbol, name, count(*) OVER (PARTITION BY lower(symbol)) > 1 AS is_shared
FROM coins
