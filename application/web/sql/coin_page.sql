-- Coins as known at a time, over the tables of page_events.sql.

-- name: coin_list
-- Grain: one row per coin that matches, in the order $sort (rank, name, upcoming or next), with the
-- number of its upcoming events and the next of them with an exact date. `total` counts all.
-- Parameters: $at; $words, a part of slug, symbol or name in small letters, or NULL; $sort; $first and
-- $limit, the rows of the page. Run twice: the same rows.
SELECT
    k.coin, k.symbol, k.name, k.rank, coalesce(a.upcoming, 0) AS upcoming,
    a.next_id, a.next_title, a.next_date, count(*) OVER () AS total
FROM page_coins AS k
LEFT JOIN (
    SELECT
        coin,
        count(*) AS upcoming,
        min(latest) FILTER (is_exact) AS next_at,
        arg_min(event_id, latest) FILTER (is_exact) AS next_id,
        arg_min(title, latest) FILTER (is_exact) AS next_title,
        arg_min(displayed_date_full, latest) FILTER (is_exact) AS next_date
    FROM page_coin_events
    WHERE gone IS NULL AND latest > $at::TIMESTAMPTZ
    GROUP BY coin
) AS a ON a.coin = k.coin
WHERE $words::VARCHAR IS NULL OR contains(k.words, $words::VARCHAR)
ORDER BY
    coalesce(lower(k.symbol) = $words::VARCHAR OR k.coin = $words::VARCHAR, false) DESC,
    CASE $sort WHEN 'name' THEN lower(coalesce(k.name, k.coin)) END,
    CASE $sort WHEN 'upcoming' THEN a.upcoming END DESC NULLS LAST,
    CASE $sort WHEN 'next' THEN a.next_at END NULLS LAST,
    k.rank NULLS LAST, upcoming DESC, k.coin
LIMIT $limit OFFSET $first

-- name: coin_facts
-- Grain: one row if the coin was known: its rank in the last complete pull, and when a complete pull
-- last showed it. Parameters: $coin, a slug. Run twice: the same row.
FROM page_coins WHERE coin = $coin

-- name: named_coins
-- Grain: one row per coin of $coins that was known, by its rank then. Parameters: $coins, slugs.
-- Run twice: the same rows.
FROM page_coins WHERE list_contains($coins::VARCHAR[], coin) ORDER BY rank NULLS LAST, coin

-- name: coin_events
-- Grain: one row per event of the page of a coin: those to come, exact dates first, from the soonest;
-- then the others, from the latest. `events` and `upcoming` count all.
-- Parameters: $coin; $at; $limit and $past_limit, the most rows of each kind. Run twice: the same rows.
-- list_contains finds the events before their coins are listed, where the events are not prepared.
WITH found AS (
    SELECT *, gone IS NULL AND coalesce(latest > $at::TIMESTAMPTZ, false) AS is_upcoming
    FROM page_coin_events
    WHERE coin = $coin AND list_contains(coins, $coin)
)
FROM (SELECT count(*) AS events, count(*) FILTER (is_upcoming) AS upcoming FROM found), (
    (
        FROM found
        WHERE is_upcoming
        ORDER BY NOT is_exact, if(is_exact, earliest, latest), event_id
        LIMIT $limit
    )
    UNION ALL
    (FROM found WHERE NOT is_upcoming ORDER BY latest DESC NULLS LAST, event_id LIMIT $past_limit)
)

-- name: coin_lanes
-- Grain: one row per event of a coin that may take place from $starts until $ends, at most $limit, of
-- the highest impact. Parameters: $coin; $starts, $ends; $limit. Run twice: the same rows.
FROM page_coin_events
WHERE coin = $coin
    AND list_contains(coins, $coin)
    AND latest > $starts::TIMESTAMPTZ
    AND may_begin < $ends::TIMESTAMPTZ
ORDER BY impact_step DESC NULLS LAST, is_exact DESC, latest, event_id
LIMIT $limit

-- name: search_coins
-- Grain: one row per coin that matches, by rank. Parameters: $words, as in coin_list; $limit. Run twice:
-- the same rows.
FROM page_coins
WHERE contains(words, $words)
ORDER BY coalesce(lower(symbol) = $words OR coin = $words, false) DESC, rank NULLS LAST, coin
LIMIT $limit

-- name: search_events
-- Grain: one row per event whose title, or coins by slug, ticker or name, have all words, or whose
-- identifier is $given: those to come, the soonest first, then the others, the latest first. `matched`
-- is id, title or coin. Accents and capitals make no difference.
-- Parameters: $given; $words, a list; $at; $limit. Run twice: the same rows.
WITH asked AS (
    SELECT list_transform($words::VARCHAR[], lambda w: strip_accents(lower(w))) AS words
)
SELECT
    f.* EXCLUDE (asked_words),
    CASE
        WHEN event_id = $given THEN 'id'
        WHEN len(
            list_filter(
                asked_words, lambda w: NOT coalesce(contains(strip_accents(lower(title)), w), false)
            )
        ) = 0
            THEN 'title'
        ELSE 'coin'
    END AS matched
FROM (
    SELECT e.*, a.words AS asked_words
    FROM page_words AS p
    CROSS JOIN asked AS a
    JOIN page_events AS e ON e.event_id = p.event_id AND NOT e.is_former
    WHERE e.event_id = $given OR len(list_filter(a.words, lambda w: NOT contains(p.words, w))) = 0
    ORDER BY
        e.event_id = $given DESC,
        coalesce(latest > $at::TIMESTAMPTZ, false) DESC,
        CASE WHEN latest > $at::TIMESTAMPTZ THEN latest END,
        latest DESC NULLS LAST,
        e.event_id
    LIMIT $limit
) AS f
