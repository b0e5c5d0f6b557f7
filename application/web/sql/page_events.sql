-- The events that all pages read, as known at a time.

-- name: has_filters
-- Whether a row matches the filters of a page: $coins, $categories (small letters), lists or NULL; $words,
-- a part of the title in small letters, or NULL; $min_impact, $bands.
{shared_has_coin}
AND {shared_has_category}
AND ($words::VARCHAR IS NULL OR contains(lower(title), $words::VARCHAR))
AND {shared_has_impact}

-- name: in_days
-- Whether an event may take place from $starts until $ends, midnights of the reader's zone; for a date
-- without a time from $day_starts until $day_ends, midnights in UTC. A scan can skip rows by the first
-- comparison.
latest > least($starts::TIMESTAMPTZ, $day_starts::TIMESTAMPTZ)
AND latest > if(date_precision = 'instant', $starts::TIMESTAMPTZ, $day_starts::TIMESTAMPTZ)
AND may_begin < if(date_precision = 'instant', $ends::TIMESTAMPTZ, $day_ends::TIMESTAMPTZ)

-- name: zone_days
-- Grain: one row per day of $days and kind of date, with a time or without one: when the day begins for
-- it. $midnights are the midnights of the reader's zone. Run twice: the same rows.
SELECT true AS is_instant, unnest($midnights::TIMESTAMPTZ[]) AS begins, unnest($days::DATE[]) AS day
UNION ALL
SELECT false, day::TIMESTAMP AT TIME ZONE 'UTC', day FROM (SELECT unnest($days::DATE[]) AS day)

-- name: page_events
-- Grain: one row per event known at $known_at, with its news since $news_since: when it was first
-- seen, moved, or left the calendar; and one more row, with `is_former`, per event that moved since,
-- with the date before its last move. `new_date`, `new_precision`, `new_may_begin` and `new_latest` are the date as
-- known. An event begins at `may_begin` or later; a deadline may fall at any time from its first sighting. `gone` is cancelled, withdrawn or missing; NULL is a scheduled event. `impact_step` is the band
-- of impact, 1 (Low) to 4 (Critical); NULL is no score.
-- Parameters: $known_at, infinity for the newest; $news_since. Run twice: the same rows.
WITH news AS (
    SELECT
        new.event_id,
        max(new.known_from) FILTER (WHERE list_contains(new.change_kinds, 'created')) AS new_at,
        max(new.known_from) FILTER (WHERE is_move) AS moved_at,
        arg_max(old, new.version) FILTER (WHERE is_move) AS old,
        max(new.known_from) FILTER (
            WHERE list_has_any(new.change_kinds, ['cancelled', 'withdrawn'])
        ) AS left_at
    FROM (
        SELECT
            event_id, version, known_from, change_kinds,
            list_has_any(change_kinds, ['rescheduled', 'made_exact', 'made_estimated']) AS is_move
        FROM event_versions
        WHERE known_from > $news_since::TIMESTAMPTZ AND known_from <= $known_at::TIMESTAMPTZ
    ) AS new
    LEFT JOIN (
        SELECT event_id, version, status, displayed_date_full, date_precision, earliest, latest
        FROM event_versions
    ) AS old ON old.event_id = new.event_id AND old.version = new.version - 1
    GROUP BY new.event_id
),
absences AS (
    SELECT
        event_id, max(changed_at) AS changed_at,
        arg_max_null(missing_since, changed_at) AS missing_since
    FROM event_absences
    WHERE changed_at <= $known_at::TIMESTAMPTZ
    GROUP BY event_id
)
SELECT
    * EXCLUDE (old, first_seen_at)
    REPLACE (
        if(is_former, old.displayed_date_full, displayed_date_full) AS displayed_date_full,
        if(is_former, old.date_precision, date_precision) AS date_precision,
        if(is_former, old.earliest, earliest) AS earliest,
        if(is_former, old.latest, latest) AS latest
    ),
    coalesce(
        if(is_former, old.date_precision, date_precision) IN ('instant', 'day'), false
    ) AS is_exact,
    coalesce(
        if(is_former, old.earliest, earliest),
        least(first_seen_at, if(is_former, old.latest, latest) - INTERVAL 24 HOURS)
    ) AS may_begin,
    old.displayed_date_full AS moved_from
FROM (
    SELECT
        v.event_id, v.version, v.title, v.coins, v.categories, v.impact, v.impact_band,
        {shared_impact_step} AS impact_step,
        v.displayed_date_full, v.date_precision, v.earliest, v.latest,
        v.displayed_date_full AS new_date, v.latest AS new_latest, v.first_seen_at,
        v.date_precision AS new_precision,
        coalesce(v.earliest, least(v.first_seen_at, v.latest - INTERVAL 24 HOURS)) AS new_may_begin,
        v.status, a.missing_since, v.source_url, v.known_from,
        CASE
            WHEN v.status <> 'scheduled' THEN v.status
            WHEN a.missing_since IS NOT NULL THEN 'missing'
        END AS gone,
        CASE WHEN a.missing_since IS NOT NULL THEN a.changed_at ELSE n.left_at END AS left_at,
        n.new_at, n.moved_at, n.old,
        unnest(if(n.old.latest IS NULL, [false], [false, true])) AS is_former
    FROM event_versions AS v
    LEFT JOIN news AS n ON n.event_id = v.event_id
    LEFT JOIN absences AS a ON a.event_id = v.event_id
    WHERE v.known_from <= $known_at::TIMESTAMPTZ
        AND (v.known_to > $known_at::TIMESTAMPTZ OR v.known_to IS NULL)
)

-- name: page_coin_events
-- Grain: one row per event of page_events and coin. Parameters: none. Run twice: the same rows.
SELECT unnest(coins) AS coin, * FROM page_events WHERE NOT is_former

-- name: page_coins
-- Grain: one row per coin known at $known_at: its rank in the last complete pull by then. A coin that
-- no pull of coins showed by then has no rank. `words` has slug, symbol and name in small letters.
-- Parameters: $known_at, infinity for the newest. Run twice: the same rows.
SELECT
    k.coin, c.symbol, c.name, r.rank, r.tracked, r.missing_since, r.observed_at,
    lower(concat_ws(' ', k.coin, c.symbol, c.name)) AS words
FROM (
    SELECT unnest(coins) AS coin FROM event_versions WHERE known_from <= $known_at::TIMESTAMPTZ
    UNION
    SELECT coin FROM _almanac.coins_at($known_at::TIMESTAMPTZ)
) AS k
LEFT JOIN _almanac.coins_at($known_at::TIMESTAMPTZ) AS r ON r.coin = k.coin
LEFT JOIN coins AS c ON c.slug = k.coin

-- name: page_words
-- Grain: one row per event of page_events: its title, and slug, symbol and name of its coins, in small
-- letters without accents. Parameters: none. Run twice: the same rows.
SELECT
    e.event_id,
    strip_accents(lower(concat_ws(' ', any_value(e.title), string_agg(c.words, ' ')))) AS words
FROM page_events AS e
LEFT JOIN page_coin_events AS k ON k.event_id = e.event_id
LEFT JOIN page_coins AS c ON c.coin = k.coin
WHERE NOT e.is_former
GROUP BY e.event_id
