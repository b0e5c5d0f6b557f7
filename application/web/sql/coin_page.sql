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
-- Grain: one row per event with the words in its title: those to come, the soonest first, then the
-- others, the latest first. Parameters: $words, in small letters; $at; $limit. Run twice: the same rows.
SELECT *, coalesce(latest > $at::TIMESTAMPTZ, false) AS is_ahead
FROM page_events
WHERE contains(lower(title), $words) AND NOT is_former
ORDER BY is_ahead DESC, if(is_ahead, latest, NULL), latest DESC NULLS LAST, event_id
LIMIT $limit
