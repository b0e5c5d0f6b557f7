-- Coins by the names that people use, and what was pulled by an instant.

-- name: coin_names
-- Grain: one row per coin, the highest rank first.
-- Parameters: none. Run twice: the same rows.
SELECT slug AS coin, symbol, name, rank
FROM coins
ORDER BY rank NULLS LAST, coin

-- name: coin_labels
-- Grain: one row per coin and label: its slug, symbol and name, as texts are compared. Coins that are
-- or were only linked to an event count, too.
-- Parameters: none. Run twice: the same rows.
WITH known AS (
    SELECT slug AS coin, symbol, name, rank FROM coins
    UNION ALL
    SELECT coin, any_value(symbol), any_value(name), NULL
    FROM (
        SELECT coin, symbol, name FROM event_coins
        UNION
        SELECT unnest(coins), NULL, NULL FROM event_versions
    )
    WHERE coin NOT IN (SELECT slug FROM coins)
    GROUP BY coin
)
SELECT * REPLACE (_almanac.coin_text(label) AS label)
FROM (
    SELECT *, unnest(['slug', 'symbol', 'name']) AS kind, unnest([coin, symbol, name]) AS label
    FROM known
)

-- name: coins_named
-- Grain: one row per text and label of a coin that it stands for: its slug, symbol or name, or a ticker
-- of the pair that it may be; the best first. A text may say which: `slug:bitcoin`.
-- Parameters: three lists of equal length: $wanted, $texts (itself or a ticker of it), $is_pair
-- (whether a ticker, for which names do not count); $kind, what a text without a mark is: slug, or
-- empty for any; the prepared table _almanac_coin_labels. Run twice: the same rows.
SELECT a.wanted, a.is_pair, l.coin, l.symbol, l.name, l.rank
FROM (
    SELECT
        wanted, is_pair, _almanac.coin_label(text) AS label,
        coalesce(nullif(_almanac.coin_kind(text), ''), $kind) AS kind
    FROM (
        SELECT
            unnest($wanted::VARCHAR[]) AS wanted, unnest($texts::VARCHAR[]) AS text,
            unnest($is_pair::BOOLEAN[]) AS is_pair
    )
) AS a
JOIN _almanac_coin_labels AS l ON l.label = a.label AND a.kind IN ('', l.kind)
WHERE a.label <> '' AND NOT (a.is_pair AND l.kind = 'name')
ORDER BY
    a.is_pair, list_position(['slug', 'symbol', 'name'], l.kind), l.rank NULLS LAST, l.coin

-- name: ranks_at
-- Grain: one row per coin of $coins, slugs, that a pull had shown by $at, with its rank then.
-- Parameters: $coins, $at. Run twice: the same rows.
SELECT coin, rank
FROM _almanac.coins_at($at::TIMESTAMPTZ)
WHERE list_contains($coins::VARCHAR[], coin)

-- name: ranked_at
-- Grain: one row per coin with a rank from 1 to $max_rank in the last complete pull by $at.
-- Parameters: $max_rank, $at. Run twice: the same rows.
SELECT coin FROM _almanac.coins_at($at::TIMESTAMPTZ) WHERE rank <= $max_rank

-- name: largest_over_time
-- Grain: one row per pull of coins: when it was, in microseconds since 1970, and the coin of $coins,
-- slugs, with the best rank then; NULL if none had one.
-- Parameters: $coins. Run twice: the same rows.
SELECT epoch_us(t.observed_at) AS since_us, arg_min(s.coin, s.rank) AS coin
FROM (SELECT DISTINCT observed_at FROM coin_snapshots) AS t
LEFT JOIN coin_snapshots AS s
    ON s.observed_at = t.observed_at AND list_contains($coins::VARCHAR[], s.coin)
GROUP BY t.observed_at
ORDER BY t.observed_at

-- name: coverage_at
-- Grain: one row per feed, plan, window and filters: its last complete pull at or before $at.
-- Parameters: $at. Run twice: the same rows.
SELECT * FROM coverage_at($at::TIMESTAMPTZ) ORDER BY feed, age_hours, batch_id

-- name: pulls_of_feeds
-- Grain: one row per complete pull.
-- Parameters: none. Run twice: the same rows.
SELECT feed, observed_at FROM coverage ORDER BY feed, observed_at

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
