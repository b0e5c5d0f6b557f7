-- The events to come, as known at a time; their marks; names of coins and categories.

-- name: upcoming_page
-- Grain: one row per upcoming event of a page, exact dates first, those under way last; one row with
-- the event_id NULL if there is none. Other dates are by precision, and of each precision by impact.
-- `total` is the number of all events that pass the filters and have a date of the same kind, exact
-- or not. `facets`, the same in each row, has the categories of the events that pass the other
-- filters, with their number; `weeks` has the events by the week (its Monday, UTC) in which they
-- begin, and by band of impact. The week NULL has the events without an exact date.
-- Parameters: $at; $starts and $ends, the time in which an event may take place; $coins, $categories
-- (small letters), lists or NULL; $min_impact, $bands; $words, a part of the title in small letters, or
-- NULL; $is_exact, whether facets count exact dates, or others, or NULL for both; $exact_from, $exact_to, $open_from, $open_to, the places of exact and of other dates.
-- Run twice: the same rows.
WITH found AS MATERIALIZED (
    SELECT *, coalesce(date_precision IN ('instant', 'day'), false) AS is_exact
    FROM upcoming_as_of($at::TIMESTAMPTZ)
    WHERE coalesce(earliest, $at::TIMESTAMPTZ) < $ends::TIMESTAMPTZ
        AND latest > $starts::TIMESTAMPTZ
        AND ($coins::VARCHAR[] IS NULL OR list_has_any(coins, $coins::VARCHAR[]))
        AND ($words::VARCHAR IS NULL OR contains(lower(title), $words::VARCHAR))
        AND {shared has_impact}
)
SELECT f.facets, w.weeks, p.*
FROM (
    SELECT list({'category': category, 'events': events} ORDER BY events DESC, category) AS facets
    FROM (
        SELECT category, count(*) AS events
        FROM (
            SELECT unnest(categories) AS category
            FROM found
            WHERE is_exact = coalesce($is_exact::BOOLEAN, is_exact)
        )
        GROUP BY category
    )
) AS f
CROSS JOIN (
    SELECT list(weekly ORDER BY week) AS weeks
    FROM (
        SELECT
            CASE WHEN is_exact THEN date_trunc(
                'week', greatest(earliest, $starts::TIMESTAMPTZ) AT TIME ZONE 'UTC'
            )::DATE END AS week,
            count(*) FILTER (WHERE coalesce(impact >= 7.5, impact_band = 'Critical')) AS critical,
            count(*) FILTER (
                WHERE coalesce(impact >= 5.0 AND impact < 7.5, impact_band = 'High')
            ) AS high,
            count(*) FILTER (
                WHERE coalesce(impact >= 2.5 AND impact < 5.0, impact_band = 'Mid')
            ) AS mid,
            count(*) FILTER (WHERE coalesce(impact < 2.5, impact_band = 'Low')) AS low,
            count(*) AS events
        FROM found
        WHERE {shared has_category}
        GROUP BY week
    ) AS weekly
) AS w
LEFT JOIN (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY is_exact
            ORDER BY is_exact AND earliest < $starts::TIMESTAMPTZ,
                list_position(['month', 'quarter', 'year', 'deadline'], date_precision),
                CASE WHEN NOT is_exact
                    THEN coalesce(
                        impact, list_position(['Low', 'Mid', 'High', 'Critical'], impact_band) * 2.5 - 2.5
                    ) END DESC NULLS LAST,
                if(is_exact, earliest, latest), earliest, event_id
        ) AS place,
        count(*) OVER (PARTITION BY is_exact) AS total
    FROM found
    WHERE {shared has_category}
    QUALIFY (is_exact AND place BETWEEN $exact_from AND $exact_to)
        OR (NOT is_exact AND place BETWEEN $open_from AND $open_to)
) AS p ON true
ORDER BY p.is_exact DESC, p.place

-- name: left_upcoming
-- Grain: one row per event that a version known after $since, until $at, or a version that ended in
-- that time, scheduled within the days, and that no longer is: cancelled, withdrawn, missing, or
-- moved to another time: `what`. By its former date; of each kind at most $limit rows, and `total`
-- is the number of all of the kind.
-- Parameters: as upcoming_page; $since; $is_exact, the kind of date before, or NULL; $limit.
-- Run twice: the same rows.
-- Of the versions alone, since the plan of events_as_of takes longer than the query.
WITH missed AS MATERIALIZED (
    SELECT event_id, max(changed_at) AS changed_at
    FROM event_absences
    WHERE changed_at <= $at::TIMESTAMPTZ
    GROUP BY event_id
    HAVING arg_max_null(missing_since, changed_at) IS NOT NULL
        AND max(changed_at) > $since::TIMESTAMPTZ
),
before AS MATERIALIZED (
    SELECT event_id, version, displayed_date_full, earliest, latest
    FROM event_versions
    WHERE known_from <= $at::TIMESTAMPTZ
        AND (
            (known_to > $since::TIMESTAMPTZ AND known_to <= $at::TIMESTAMPTZ)
            OR event_id IN (SELECT event_id FROM missed)
        )
        AND known_to IS DISTINCT FROM known_from
        AND status = 'scheduled'
        AND coalesce(earliest, $at::TIMESTAMPTZ) < $ends::TIMESTAMPTZ
        AND latest > $starts::TIMESTAMPTZ
        AND (
            $is_exact::BOOLEAN IS NULL
            OR coalesce(date_precision IN ('instant', 'day'), false) = $is_exact::BOOLEAN
        )
        AND ($coins::VARCHAR[] IS NULL OR list_has_any(coins, $coins::VARCHAR[]))
        AND ($words::VARCHAR IS NULL OR contains(lower(title), $words::VARCHAR))
        AND {shared has_category}
        AND {shared has_impact}
    QUALIFY row_number() OVER (PARTITION BY event_id ORDER BY version DESC) = 1
),
judged AS (
    SELECT
        b.event_id, b.displayed_date_full AS old_date, b.earliest AS old_earliest,
        n.title, n.displayed_date_full, n.source_url,
        CASE
            WHEN n.status <> 'scheduled' THEN n.status
            WHEN m.event_id IS NOT NULL THEN 'missing'
            WHEN (
                coalesce(n.earliest, $at::TIMESTAMPTZ) < $ends::TIMESTAMPTZ
                AND n.latest > $starts::TIMESTAMPTZ
                AND (
                    $is_exact::BOOLEAN IS NULL
                    OR coalesce(n.date_precision IN ('instant', 'day'), false) = $is_exact::BOOLEAN
                )
            ) IS NOT TRUE THEN 'moved'
        END AS what,
        coalesce(m.changed_at, n.known_from) AS known_at
    FROM before AS b
    JOIN event_versions AS n ON n.event_id = b.event_id
    LEFT JOIN missed AS m ON m.event_id = b.event_id
    WHERE n.known_from <= $at::TIMESTAMPTZ
        AND (n.known_to > $at::TIMESTAMPTZ OR n.known_to IS NULL)
)
SELECT
    * EXCLUDE (old_earliest),
    count(*) OVER (PARTITION BY what) AS total
FROM judged
WHERE what IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY what ORDER BY old_earliest NULLS LAST, event_id) <= $limit
ORDER BY old_earliest NULLS LAST, event_id

-- name: known_categories
-- Grain: one row per category known at $at: listed by then, or of a version known by then.
-- Parameters: $at. Run twice: the same rows.
SELECT name AS category FROM categories WHERE first_seen_at <= $at::TIMESTAMPTZ
UNION
SELECT unnest(categories) FROM event_versions WHERE known_from <= $at::TIMESTAMPTZ
ORDER BY category

-- name: recent_marks
-- Grain: one row per event of $event_ids that was created, or whose date changed, after $since and at
-- or before $at: its last such version.
-- Parameters: $event_ids, $since, $at. Run twice: the same rows.
{shared recent_marks}

-- name: coin_labels
-- Grain: one row per coin of $coins that has a name. Symbol and name are current. `is_shared` says
-- that another coin has the same symbol.
-- Parameters: $coins, slugs. Run twice: the same rows.
SELECT
    slug AS coin, symbol, name,
    lower(symbol) IN (
        SELECT lower(symbol) FROM coins GROUP BY lower(symbol) HAVING count(*) > 1
    ) AS is_shared
FROM coins
WHERE slug IN (SELECT unnest($coins::VARCHAR[]))
