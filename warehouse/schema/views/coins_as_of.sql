-- name: macro_coins_at
-- Grain: one row per coin that a complete pull had shown by the instant: as the last of them shows it, or
-- without rank and counts. No row before the first complete pull.
-- Parameters: moment, a TIMESTAMPTZ.
-- The last observation is found from two columns alone: there may be millions of them.
CREATE MACRO _almanac.coins_at(moment) AS TABLE
SELECT
    k.coin, s.rank, s.tracked, s.upcoming_count, s.major_count, s.peak_impact,
    CASE WHEN s.coin IS NOT NULL THEN true WHEN a.coin IS NOT NULL THEN false END AS listed,
    a.missing_since,
    k.observed_at
FROM (
    SELECT coin, max(observed_at) AS observed_at
    FROM coin_snapshots
    WHERE observed_at <= moment
    GROUP BY coin
) AS k
LEFT JOIN (
    SELECT * FROM coin_snapshots
    WHERE observed_at = (SELECT max(observed_at) FROM coin_snapshots WHERE observed_at <= moment)
) AS s ON s.coin = k.coin
LEFT JOIN _almanac.coin_absences AS a
    ON a.coin = k.coin AND a.missing_since <= moment
    AND (a.missing_to > moment OR a.missing_to IS NULL)

-- name: macro_coins_as_of
-- Grain: one row per coin that a complete pull had shown by the instant `ts`, as the last of them shows it;
-- symbol and name are the current ones. An error for an instant before the first complete pull of coins,
-- or still to come.
-- Parameters: ts, an instant as in events_as_of.
-- The last part is the check of the time, as in refusal_as_of.
CREATE MACRO coins_as_of(ts) AS TABLE
SELECT
    s.coin, c.symbol, c.name,
    s.rank, s.tracked, s.upcoming_count, s.major_count, s.peak_impact, s.listed, s.missing_since,
    s.observed_at
FROM _almanac.coins_at(_almanac.instant(ts)) AS s
LEFT JOIN coins AS c ON c.slug = s.coin
UNION ALL
SELECT
    refusal,
    refusal,
    refusal,
    TRY_CAST(refusal AS INTEGER),
    TRY_CAST(refusal AS BOOLEAN),
    TRY_CAST(refusal AS INTEGER),
    TRY_CAST(refusal AS INTEGER),
    TRY_CAST(refusal AS DOUBLE),
    TRY_CAST(refusal AS BOOLEAN),
    TRY_CAST(refusal AS TIMESTAMPTZ),
    TRY_CAST(refusal AS TIMESTAMPTZ)
FROM (
    SELECT md5(CASE
        WHEN _almanac.refused('coins_as_of', 'coins', ts, moment, first_at, last_at, '') THEN ''
    END) AS refusal
    FROM (
        SELECT *, _almanac.instant(ts) AS moment
        FROM (
            SELECT
                (SELECT min(observed_at) FROM coin_snapshots) AS first_at,
                max(observed_at) AS last_at
            FROM batches
            WHERE status = 'merged'
        )
    )
)
WHERE refusal IS NOT NULL

-- name: macro_universe
-- Grain: one row per coin that is listed at the instant `ts`, by rank, those without one last; with `top`,
-- those with a rank up to it. An error for an instant without an answer, as coins_as_of, and for a `top`
-- below 1.
-- Parameters: ts, an instant as in events_as_of; top, a rank, or NULL for every coin.
CREATE MACRO universe(ts, top := NULL) AS TABLE
SELECT coin, symbol, name, rank, tracked
FROM coins_as_of(ts)
WHERE listed AND (top IS NULL OR rank <= CASE
    WHEN top::DOUBLE >= 1 THEN top::DOUBLE
    ELSE error('universe: top is ' || top::VARCHAR || '; expected a rank, 1 or more')
END)
ORDER BY rank NULLS LAST, coin

-- name: macro_event_coins_as_of
-- Grain: one row per event known at the instant `ts` and coin linked to it then; rank as of then,
-- symbol and name are the current ones. An error for an instant without an answer, as events_as_of.
-- Parameters: ts, an instant as in events_as_of.
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
LEFT JOIN _almanac.coins_at(_almanac.instant(ts)) AS s ON s.coin = e.coin
