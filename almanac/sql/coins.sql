-- Coins by the names that people use, and what was pulled by an instant.

-- name: coin_names
-- Grain: one row per coin, the highest rank first.
-- Parameters: none. Run twice: the same rows.
SELECT slug AS coin, symbol, name, rank
FROM coins
ORDER BY rank NULLS LAST, coin

-- name: coins_named
-- Grain: one row per text of the frame and coin that it stands for by its slug, symbol or name, else by
-- a ticker of the pair that it may be. A text may say which: `slug:bitcoin`. Coins that are only linked
-- to an event count, too.
-- Parameters: the frame wanted_coins (wanted, text: itself or a ticker of it, is_pair: whether a ticker,
-- for which names do not count); $kind, what a text without a mark is: slug, or empty for any.
-- Run twice: the same rows.
WITH known AS (
    SELECT slug AS coin, symbol, name, rank FROM coins
    UNION ALL
    SELECT coin, any_value(symbol), any_value(name), NULL
    FROM event_coins
    WHERE coin NOT IN (SELECT slug FROM coins)
    GROUP BY coin
),
labels AS (
    SELECT coin, 'slug' AS kind, _almanac.coin_text(coin) AS label FROM known
    UNION ALL
    SELECT coin, 'symbol', _almanac.coin_text(symbol) FROM known
    UNION ALL
    SELECT coin, 'name', _almanac.coin_text(name) FROM known
),
asked AS (
    SELECT
        wanted, is_pair,
        coalesce(nullif(_almanac.coin_kind(text), ''), $kind) AS kind,
        _almanac.coin_label(text) AS label
    FROM wanted_coins
)
SELECT
    a.wanted, a.is_pair, k.coin, k.symbol, k.name, k.rank,
    arg_min(l.kind, list_position(['slug', 'symbol', 'name'], l.kind)) AS matched_by
FROM asked AS a
JOIN labels AS l ON l.label = a.label AND a.kind IN ('', l.kind)
JOIN known AS k ON k.coin = l.coin
WHERE a.label <> '' AND NOT (a.is_pair AND l.kind = 'name')
GROUP BY a.wanted, a.is_pair, k.coin, k.symbol, k.name, k.rank
QUALIFY a.is_pair = min(a.is_pair) OVER (PARTITION BY a.wanted)
ORDER BY a.wanted, list_position(['slug', 'symbol', 'name'], matched_by), k.rank NULLS LAST, k.coin

-- name: coverage_at
-- Grain: one row per feed, plan, window and filters: its last complete pull at or before $at.
-- Parameters: $at. Run twice: the same rows.
SELECT * FROM coverage_at($at::TIMESTAMPTZ) ORDER BY feed, age_hours, batch_id

-- name: no_coverage
-- Grain: no row, with the columns of coverage_at.
-- Parameters: none. Run twice: the same.
SELECT
    feed, plan, lower, upper, coins, categories, since, observed_at, content_at,
    NULL::DOUBLE AS age_hours, rows, batch_id
FROM coverage
LIMIT 0

-- name: pulls_of_events
-- Grain: one row, the first and the last pull of events at or before $at; NULL if there was none.
-- Parameters: $at. Run twice: the same row.
SELECT min(observed_at) AS first_pull_at, max(observed_at) AS last_pull_at
FROM batches
WHERE status = 'merged'
    AND feed IN ('export', 'events', 'event', 'deliveries')
    AND observed_at <= $at::TIMESTAMPTZ
