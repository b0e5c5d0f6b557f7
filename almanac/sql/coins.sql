-- Coins by the names that people use, and what was pulled by an instant.

-- name: coin_matches
-- Grain: one row per coin that $wanted names, the best match first; matched_by says how.
-- Parameters: $wanted. Run twice: the same rows.
SELECT coin, symbol, name, rank, matched_by
FROM coin_lookup($wanted)
ORDER BY list_position(['slug', 'symbol', 'name', 'prefix'], matched_by), rank NULLS LAST, coin

-- name: coin_names
-- Grain: one row per coin, the highest rank first.
-- Parameters: none. Run twice: the same rows.
SELECT slug AS coin, symbol, name, rank
FROM coins
ORDER BY rank NULLS LAST, coin

-- name: linked_coins
-- Grain: one row per coin that is linked to an event and has the slug, symbol or name $wanted; for
-- homes without a pull of coins.
-- Parameters: $wanted. Run twice: the same rows.
SELECT DISTINCT coin, symbol, name, NULL::INTEGER AS rank,
    CASE
        WHEN coin = $wanted THEN 'slug'
        WHEN lower(symbol) = lower($wanted) THEN 'symbol'
        ELSE 'name'
    END AS matched_by
FROM event_coins
WHERE coin = $wanted OR lower(symbol) = lower($wanted) OR lower(name) = lower($wanted)
ORDER BY coin

-- name: coins_named
-- Grain: one row per text of the frame and coin that it names in the best way: by its slug, else by
-- its symbol, else by its name. Coins that are only linked to an event count for a text that names
-- no other.
-- Parameters: the frame wanted_coins (wanted). Run twice: the same rows.
WITH known AS (
    SELECT slug AS coin, symbol, name, rank, 0 AS source FROM coins
    UNION ALL
    SELECT DISTINCT coin, symbol, name, NULL, 1 FROM event_coins
),
matched AS (
    SELECT w.wanted, k.*, 'slug' AS matched_by
    FROM wanted_coins AS w JOIN known AS k ON k.coin = trim(w.wanted)
    UNION ALL
    SELECT w.wanted, k.*, 'symbol'
    FROM wanted_coins AS w JOIN known AS k ON lower(k.symbol) = lower(trim(w.wanted))
    UNION ALL
    SELECT w.wanted, k.*, 'name'
    FROM wanted_coins AS w JOIN known AS k ON lower(k.name) = lower(trim(w.wanted))
)
SELECT wanted, coin, symbol, name, rank
FROM matched
QUALIFY rank() OVER (
    PARTITION BY wanted
    ORDER BY source, list_position(['slug', 'symbol', 'name'], matched_by)
) = 1
ORDER BY wanted, coin

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
