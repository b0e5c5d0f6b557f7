-- The changes of a period, for the page of changes. Only versions with known_from in the
-- period are read, so that a page as of a past time has nothing of later.
--
--     event_versions ─▶ count_changes, list_changes, count_moves, count_lead_times
--     batches        ─▶ previous_pull

-- name: count_changes
-- Grain: one row per kind of change in the period: changes, and events with such a change.
-- Parameters: $since (exclusive) and $until, instants, or $after and $through, places of the feed, else
-- NULL; $coins and $categories (names in small letters), lists or NULL; $min_impact, a score or NULL;
-- $bands, the bands that lie above it.
-- Run twice: the same rows.
SELECT kind, count(*) AS changes, count(DISTINCT event_id) AS events
FROM (
    SELECT event_id, unnest(change_kinds) AS kind
    FROM event_versions
    WHERE {shared in_period}
        AND ($coins::VARCHAR[] IS NULL OR list_has_any(coins, $coins::VARCHAR[]))
        AND {shared has_category}
        AND {shared has_impact}
)
GROUP BY kind

-- name: list_changes
-- Grain: one row per version and kind of change in the period, newest first; of one time the highest
-- impact first. Of each kind, $limit changes after the first $skip.
-- Parameters: as count_changes; $kinds, a list; $skip, $limit. Run twice: the same rows.
-- `old_value` and `new_value` are as in `changes`; the shift is as in `reschedules`.
WITH found AS (
    SELECT *
    FROM (
        SELECT
            event_id, version, known_from, title, coins, impact, impact_band, status,
            displayed_date_full, source_url, changed_fields, unnest(change_kinds) AS kind
        FROM event_versions
        WHERE {shared in_period}
            AND ($coins::VARCHAR[] IS NULL OR list_has_any(coins, $coins::VARCHAR[]))
            AND {shared has_category}
            AND {shared has_impact}
    )
    WHERE list_contains($kinds::VARCHAR[], kind)
    WINDOW in_order AS (
        PARTITION BY kind ORDER BY known_from DESC, impact DESC NULLS LAST, event_id, version
    )
    QUALIFY
        row_number() OVER in_order > $skip::BIGINT
        AND row_number() OVER in_order <= $skip::BIGINT + $limit::BIGINT
)
SELECT
    found.* EXCLUDE (changed_fields),
    CASE
        WHEN found.kind IN ('rescheduled', 'made_exact', 'made_estimated')
            THEN old.displayed_date_full
        WHEN found.kind = 'rescored' THEN coalesce(old.impact::VARCHAR, old.impact_band)
        WHEN found.kind IN ('cancelled', 'withdrawn', 'restored') THEN old.status
    END AS old_value,
    CASE
        WHEN found.kind IN ('rescheduled', 'made_exact', 'made_estimated')
            THEN found.displayed_date_full
        WHEN found.kind = 'rescored' THEN coalesce(found.impact::VARCHAR, found.impact_band)
        WHEN found.kind IN ('cancelled', 'withdrawn', 'restored') THEN found.status
        ELSE nullif(array_to_string(found.changed_fields, ', '), '')
    END AS new_value,
    moved.kind AS move, moved.shift_days, moved.least_shift_days, moved.most_shift_days
FROM found
LEFT JOIN event_versions AS old
    ON old.event_id = found.event_id AND old.version = found.version - 1
LEFT JOIN (
    SELECT event_id, version, kind, shift_days, least_shift_days, most_shift_days
    FROM reschedules
    WHERE $after::BIGINT IS NOT NULL
        OR (known_from > $since::TIMESTAMPTZ AND known_from <= $until::TIMESTAMPTZ)
) AS moved
    ON moved.event_id = found.event_id AND moved.version = found.version
    AND found.kind IN ('rescheduled', 'made_exact', 'made_estimated')
ORDER BY
    found.kind, found.known_from DESC, found.impact DESC NULLS LAST, found.event_id, found.version

-- name: count_moves
-- Grain: one row per category of the events whose date moved in the period, as known at the move.
-- Parameters: as count_changes. Run twice: the same rows.
-- An event with several categories counts in each; an event without one is in '(none)'.
SELECT
    category,
    count(*) FILTER (move = 'slipped') AS slipped,
    count(*) FILTER (move = 'pulled_in') AS pulled_in,
    count(*) FILTER (move IN ('refined', 'loosened')) AS other_precision,
    count(*) FILTER (move IN ('time_only', 'end_only')) AS same_start
FROM (
    SELECT
        moved.kind AS move,
        unnest(CASE WHEN len(v.categories) > 0 THEN v.categories ELSE ['(none)'] END) AS category
    FROM (
        SELECT event_id, version, kind
        FROM reschedules
        WHERE $after::BIGINT IS NOT NULL
            OR (known_from > $since::TIMESTAMPTZ AND known_from <= $until::TIMESTAMPTZ)
    ) AS moved
    JOIN event_versions AS v ON v.event_id = moved.event_id AND v.version = moved.version
    WHERE {shared in_period}
        AND ($coins::VARCHAR[] IS NULL OR list_has_any(coins, $coins::VARCHAR[]))
        AND {shared has_category}
        AND {shared has_impact}
)
GROUP BY category
ORDER BY count(*) DESC, category

-- name: count_lead_times
-- Grain: one row per length of time between the announcement of an event and its date, for the
-- events that were announced in the period and have an exact date: `least` days or more. The row
-- with a NULL `least` has the events without an exact date.
-- Parameters: as count_changes; $steps, the ascending lower ends of the lengths, in days.
-- Run twice: the same rows.
SELECT
    list_max(list_filter($steps::INTEGER[], lambda step: step <= greatest(days, 0))) AS least,
    count(*) AS events
FROM (
    SELECT
        CASE WHEN date_precision IN ('instant', 'day')
            THEN _almanac.days_until(date, date_precision, created_at) END AS days
    FROM event_versions
    WHERE {shared in_period}
        AND list_contains(change_kinds, 'created')
        AND created_at IS NOT NULL
        AND ($coins::VARCHAR[] IS NULL OR list_has_any(coins, $coins::VARCHAR[]))
        AND {shared has_category}
        AND {shared has_impact}
)
GROUP BY least

-- name: previous_pull
-- Grain: one row: the instant of the pull before the last one by $at; NULL if there was none.
-- Parameters: $at. Run twice: the same row.
SELECT max(observed_at) AS observed_at
FROM batches
WHERE status = 'merged'
    AND observed_at < (
        SELECT max(observed_at)
        FROM batches
        WHERE status = 'merged' AND observed_at <= $at::TIMESTAMPTZ
    )
