-- name: macro_coins_as_of
-- Grain: one row per coin known at the instant `ts`, as last observed then; symbol and name are the
-- current ones. An error for an instant before the first pull of coins, or still to come.
-- Parameters: ts, an instant as in events_as_of. Run twice: fails; it is made once in a new file.
-- The last observation is found from two columns alone: there may be millions of them.
CREATE MACRO coins_as_of(ts) AS TABLE
SELECT
    s.coin, c.symbol, c.name,
    s.rank, s.tracked, s.upcoming_count, s.major_count, s.peak_impact, s.observed_at
FROM coin_snapshots AS s
JOIN (
    SELECT coin, max(observed_at) AS observed_at
    FROM coin_snapshots
    WHERE observed_at <= _almanac.instant(ts)
    GROUP BY coin
) AS l ON l.coin = s.coin AND l.observed_at = s.observed_at
LEFT JOIN coins AS c ON c.slug = s.coin
UNION ALL
SELECT
    coin, coin, coin, rank, tracked, upcoming_count, major_count, peak_impact, observed_at
FROM coin_snapshots,
    (
        SELECT _almanac.refused('coins_as_of', 'coins', ts, moment, first_at, last_at, '') AS is_wrong
        FROM (
            SELECT *, _almanac.instant(ts) AS moment
            FROM (
                SELECT min(observed_at) AS first_at, max(observed_at) AS last_at
                FROM batches
                WHERE status = 'merged' AND feed = 'coins'
            )
        )
    ) AS checked
WHERE checked.is_wrong

-- name: macro_event_coins_as_of
-- Grain: one row per event known at the instant `ts` and coin linked to it then; rank as of then,
-- symbol and name are the current ones. An error for an instant without an answer, as events_as_of.
-- Parameters: ts, an instant as in events_as_of. Run twice: fails; it is made once in a new file.
CREATE MACRO event_coins_as_of(ts) AS TABLE
SELECT
    e.event_id,
    e.coin,
    coalesce(c.symbol, n.symbol) AS symbol,
    coalesce(c.name, n.name) AS name,
    s.rank
FROM (SELECT event_id, unnest(coins) AS coin FROM events_as_of(ts)) AS e
LEFT JOIN coins AS c ON c.slug = e.coin
LEFT JOIN (SELECT DISTINCT coin, symbol, name FROM event_coins) AS n ON n.coin = e.coin
LEFT JOIN (
    SELECT coin, arg_max_null(rank, observed_at) AS rank
    FROM coin_snapshots
    WHERE observed_at <= _almanac.instant(ts)
    GROUP BY coin
) AS s ON s.coin = e.coin
