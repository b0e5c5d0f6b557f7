-- Parts of statements of any package, which name them in braces.

-- name: shared_has_coin
-- Whether a row has one of $coins, slugs. NULL selects every row. Of hundreds of slugs this is ten times
-- as fast as list_has_any.
(
    $coins::VARCHAR[] IS NULL
    OR len(list_filter(coins, lambda coin: list_contains($coins::VARCHAR[], coin))) > 0
)

-- name: shared_has_category
-- Whether a row has one of $categories, names in small letters. NULL selects every row.
(
    $categories::VARCHAR[] IS NULL
    OR list_has_any(list_transform(categories, lambda name: lower(name)), $categories::VARCHAR[])
)

-- name: shared_has_impact
-- Whether a row has at least $min_impact; without a score, a band in $bands, which lie above it as a
-- whole. NULL selects every row.
(
    $min_impact::DOUBLE IS NULL
    OR impact >= $min_impact::DOUBLE
    OR (impact IS NULL AND list_contains($bands::VARCHAR[], impact_band))
)

-- name: shared_has_filters
-- Whether a row passes the filters that every list of events has.
{shared_has_coin}
AND {shared_has_category}
AND {shared_has_impact}

-- name: shared_impact_step
-- The band of impact of a row `v`, 1 (Low) to 4 (Critical); NULL without a score.
coalesce(
    CASE
        WHEN v.impact >= 7.5 THEN 4
        WHEN v.impact >= 5 THEN 3
        WHEN v.impact >= 2.5 THEN 2
        WHEN v.impact IS NOT NULL THEN 1
    END,
    list_position(['Low', 'Mid', 'High', 'Critical'], v.impact_band)
)

-- name: shared_in_period
-- Whether a version was published after the place $after, until $through; where $after is NULL,
-- whether it became known after $since, until $until.
if(
    $after::BIGINT IS NULL,
    known_from > $since::TIMESTAMPTZ AND known_from <= $until::TIMESTAMPTZ,
    published_seq > $after::BIGINT AND published_seq <= $through::BIGINT
)

-- name: shared_last_complete_pull
-- When the last complete pull of a feed was observed, over rows of `batches`. A pull of events is
-- complete here if its dates include the day of the pull.
max(observed_at) FILTER (
    WHERE complete
        AND status = 'merged'
        AND (
            feed NOT IN ('export', 'events')
            OR (coalesce(lower <= observed_at, true) AND coalesce(upper >= observed_at, true))
        )
)

-- name: shared_in_window
-- Whether an event may lie in the window from $lower to $upper, instants or NULL; $lower_day and
-- $upper_day are the same for dates of days and periods. A deadline may fall at any time from the
-- first sighting.
(
    (
        $lower::TIMESTAMPTZ IS NULL
        OR latest > CASE
            WHEN epoch_us(date_end) % 86400000000 = 0 THEN $lower_day::TIMESTAMPTZ
            WHEN date_end IS NOT NULL OR date_precision = 'instant' THEN $lower::TIMESTAMPTZ
            ELSE $lower_day::TIMESTAMPTZ
        END
    )
    AND (
        $upper::TIMESTAMPTZ IS NULL
        OR coalesce(earliest, least(first_seen_at, latest - INTERVAL 24 HOURS)) < CASE
            WHEN date_precision = 'instant' THEN $upper::TIMESTAMPTZ
            ELSE $upper_day::TIMESTAMPTZ
        END
    )
)

-- name: shared_presence
-- Grain: one row per event and time [shown_us, hidden_us) in which it was present, with a NULL
-- missing_since, or missing. Events that were never missing have no row.
SELECT
    event_id, missing_since, changed_us AS shown_us,
    lead(changed_us, 1, 9223372036854775807) OVER (
        PARTITION BY event_id ORDER BY changed_us
    ) AS hidden_us
FROM (
    SELECT event_id, epoch_us(changed_at) AS changed_us, missing_since FROM event_absences
    UNION ALL
    SELECT DISTINCT event_id, -9223372036854775807, NULL FROM event_absences
)
