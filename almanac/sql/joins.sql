-- Spans of time, in microseconds since 1970 UTC: whole numbers, so that no zone of a session plays a
-- part. A span is [starts, ends).
--
--     event_versions, event_absences ─▶ spans_ahead  ─▶ attach_known, features
--     coverage ─▶ spans_watched      ─┘
--     coins, event_versions, coin_snapshots ─▶ step_coins, for the table event_steps
--     event_versions, event_absences ─▶ blackouts

-- name: spans_ahead
-- Grain: one row per coin of the frame, version, and time in which it was what was known of an event
-- that was ahead: linked to the coin, scheduled, not missing, with an exact date that could still
-- come, at most $horizon_us away. The spans of one coin and event do not overlap. In the order in
-- which one goes before another as the next event.
-- Parameters: the frame requested_coins (coin, code); $horizon_us; $first_us and $last_us, the first and
-- the last instant of interest; $categories, names in small letters, or NULL; $min_impact and $bands
-- as in events. Run twice: the same rows.
WITH shown AS (
    {shared_presence}
),
dated AS (
    SELECT
        event_id, version, date, unnest(coins) AS coin,
        epoch_us(known_from) AS known_us,
        coalesce(epoch_us(known_to), $last_us::BIGINT + 1) AS replaced_us,
        epoch_us(date) AS date_us,
        epoch_us(date) + CASE date_precision WHEN 'day' THEN 86400000000 ELSE 0 END AS begun_us
    FROM event_versions
    WHERE status = 'scheduled'
        AND date_precision IN ('instant', 'day')
        AND begun_us > $first_us::BIGINT
        AND date_us - $horizon_us::BIGINT <= $last_us::BIGINT
        AND {shared_has_category}
        AND {shared_has_impact}
),
spans AS (
    SELECT
        c.code, d.event_id, d.version, d.date,
        greatest(d.known_us, d.date_us - $horizon_us::BIGINT, s.shown_us, $first_us::BIGINT) AS starts,
        least(d.replaced_us, d.begun_us, s.hidden_us, $last_us::BIGINT + 1) AS ends
    FROM dated AS d
    JOIN requested_coins AS c ON c.coin = d.coin
    LEFT JOIN shown AS s ON s.event_id = d.event_id AND s.missing_since IS NULL
    WHERE starts < ends
)
SELECT
    p.code, p.starts, p.ends,
    v.event_id, v.title, v.date, v.date_precision,
    array_to_string(v.categories, '; ') AS categories,
    v.impact, v.impact_band, v.known_from, v.first_seen_at
FROM spans AS p
JOIN event_versions AS v ON v.event_id = p.event_id AND v.version = p.version
ORDER BY p.code, p.date, p.event_id, p.starts

-- name: spans_watched
-- Grain: one row per complete pull of events and coin of the frame to which it was limited (code -1
-- if to none): the instants at which it was at most $age_us old and had covered the dates from the
-- day of the instant until $horizon_us after it. A pull of the plan Free covers the coins that a
-- pull of the same day listed.
-- Parameters: the frame requested_coins (coin, code); $horizon_us, $age_us. Run twice: the same rows.
WITH pulls AS (
    SELECT
        plan, coins, observed_at,
        greatest(
            epoch_us(observed_at),
            (epoch_us(lower) + 86399999999) // 86400000000 * 86400000000
        ) AS starts,
        least(
            epoch_us(observed_at) + $age_us::BIGINT + 1,
            epoch_us(upper) - $horizon_us::BIGINT + 1
        ) AS ends
    FROM coverage
    WHERE feed IN ('export', 'events') AND categories IS NULL
)
SELECT -1 AS code, starts, ends
FROM pulls
WHERE coins IS NULL AND plan IS DISTINCT FROM 'free' AND starts < ends
UNION ALL
SELECT c.code, p.starts, p.ends
FROM pulls AS p
JOIN requested_coins AS c ON list_contains(p.coins, c.coin)
WHERE p.plan IS DISTINCT FROM 'free' AND p.starts < p.ends
UNION ALL
SELECT c.code, greatest(p.starts, epoch_us(s.observed_at)) AS starts, p.ends
FROM pulls AS p
JOIN coin_snapshots AS s ON s.observed_date = (p.observed_at AT TIME ZONE 'UTC')::DATE
JOIN requested_coins AS c ON c.coin = s.coin
WHERE p.plan = 'free'
    AND (p.coins IS NULL OR list_contains(p.coins, c.coin))
    AND greatest(p.starts, epoch_us(s.observed_at)) < p.ends
ORDER BY code, starts, ends

-- name: step_coins
-- Grain: one row per coin that is listed, or that any version or snapshot names.
-- Parameters: none. Run twice: the same rows.
SELECT slug AS coin FROM coins
UNION
SELECT unnest(coins) FROM event_versions
UNION
SELECT coin FROM coin_snapshots
ORDER BY coin

-- name: impact_is_known
-- Grain: one row, whether any version has a score or a band.
-- Parameters: none. Run twice: the same row.
SELECT
    coalesce(bool_or(impact IS NOT NULL OR impact_band IS NOT NULL), false) AS is_known,
    count(*) AS versions
FROM event_versions

-- name: blackouts
-- Grain: one row per coin and stretch of time without a gap that lies around the beginning of events
-- with an exact date: $before_us before it, $after_us after it or after the end of its UTC day. At
-- $at_us, by what was known then; if it is NULL, by what was known at each instant of the time.
-- Parameters: $at_us, $before_us, $after_us; $coins, a list or NULL; $categories, $min_impact, $bands
-- as in events. Run twice: the same rows.
WITH shown AS (
    {shared_presence}
),
dated AS (
    SELECT
        event_id, impact, known_from, unnest(coins) AS coin,
        epoch_us(known_from) AS known_us,
        coalesce(epoch_us(known_to), 9223372036854775807) AS replaced_us,
        epoch_us(date) - $before_us::BIGINT AS begins_us,
        epoch_us(date) + CASE date_precision WHEN 'day' THEN 86400000000 ELSE 0 END
            + $after_us::BIGINT AS ends_us
    FROM event_versions
    WHERE status = 'scheduled'
        AND date_precision IN ('instant', 'day')
        AND {shared_has_category}
        AND {shared_has_impact}
),
known AS (
    SELECT
        d.coin, d.event_id, d.impact, d.known_from, d.begins_us, d.ends_us,
        greatest(d.known_us, s.shown_us) AS from_us,
        least(d.replaced_us, s.hidden_us) AS to_us
    FROM dated AS d
    LEFT JOIN shown AS s ON s.event_id = d.event_id AND s.missing_since IS NULL
    WHERE $coins::VARCHAR[] IS NULL OR list_contains($coins::VARCHAR[], d.coin)
),
spans AS (
    SELECT coin, event_id, impact, known_from, begins_us AS starts, ends_us AS ends
    FROM known
    WHERE $at_us::BIGINT >= from_us AND $at_us::BIGINT < to_us
    UNION ALL
    SELECT
        coin, event_id, impact, known_from,
        greatest(begins_us, from_us), least(ends_us, to_us)
    FROM known
    WHERE $at_us::BIGINT IS NULL AND greatest(begins_us, from_us) < least(ends_us, to_us)
),
numbered AS (
    SELECT *, sum(is_apart::INTEGER) OVER (
        PARTITION BY coin ORDER BY starts, ends, event_id ROWS UNBOUNDED PRECEDING
    ) AS stretch
    FROM (
        SELECT *, starts > max(ends) OVER (
            PARTITION BY coin ORDER BY starts, ends, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS is_apart
        FROM spans
    )
)
SELECT
    coin,
    make_timestamp(min(starts)) AT TIME ZONE 'UTC' AS starts,
    make_timestamp(max(ends)) AT TIME ZONE 'UTC' AS ends,
    max(known_from) AS known_from,
    max(impact) AS impact,
    list_sort(list_distinct(list(event_id))) AS event_ids
FROM numbered
GROUP BY coin, coalesce(stretch, 0)
ORDER BY min(starts), coin
