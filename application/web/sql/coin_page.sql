-- Coins as known at a time. Symbol and name are the current ones, as in coins_as_of.

-- name: coin_list
-- Grain: one row per coin of a page, by rank, with the number of its upcoming events. `total` is the
-- number of all coins that match. Coins that no pull of coins showed by then have no rank.
-- Parameters: $at; $words, a part of slug, symbol or name in small letters, or NULL; $first and
-- $limit, the rows of the page. Run twice: the same rows.
WITH ranked AS (
    SELECT coin, rank FROM _almanac.coins_at($at::TIMESTAMPTZ)
),
ahead AS (
    SELECT coin, count(*) AS upcoming
    FROM (SELECT unnest(coins) AS coin FROM upcoming_as_of($at::TIMESTAMPTZ))
    GROUP BY coin
),
known AS (
    SELECT coin FROM ranked
    UNION
    SELECT unnest(coins) FROM event_versions WHERE known_from <= $at::TIMESTAMPTZ
)
SELECT
    k.coin, c.symbol, c.name, r.rank, coalesce(a.upcoming, 0) AS upcoming,
    count(*) OVER () AS total
FROM known AS k
LEFT JOIN ranked AS r ON r.coin = k.coin
LEFT JOIN ahead AS a ON a.coin = k.coin
LEFT JOIN coins AS c ON c.slug = k.coin
WHERE $words::VARCHAR IS NULL
    OR contains(lower(concat_ws(' ', k.coin, c.symbol, c.name)), $words::VARCHAR)
ORDER BY
    coalesce(lower(c.symbol) = $words::VARCHAR OR k.coin = $words::VARCHAR, false) DESC,
    r.rank NULLS LAST, upcoming DESC, k.coin
LIMIT $limit OFFSET $first

-- name: coin_facts
-- Grain: one row if the coin was known at $at: its rank in the last complete pull by then, and when a
-- complete pull last showed it. Parameters: $coin, a slug; $at. Run twice: the same row.
SELECT s.rank, s.tracked, s.missing_since, s.observed_at, c.symbol, c.name
FROM (SELECT $coin AS coin) AS w
LEFT JOIN _almanac.coins_at($at::TIMESTAMPTZ) AS s ON s.coin = w.coin
LEFT JOIN coins AS c ON c.slug = w.coin
WHERE s.coin IS NOT NULL
    OR EXISTS (
        FROM event_versions
        WHERE list_contains(coins, $coin) AND known_from <= $at::TIMESTAMPTZ
    )

-- name: coin_events
-- Grain: one row per event of a page that was linked to the coin at $at: those to come, exact dates
-- first, from the soonest; the others from the latest. `total` is the number of all of a kind.
-- Parameters: $coin; $at; $limit and $past_limit, the most rows of each kind. Run twice: the same rows.
SELECT *
FROM (
    SELECT
        *,
        count(*) OVER (PARTITION BY is_upcoming) AS total,
        row_number() OVER (
            PARTITION BY is_upcoming
            ORDER BY
                is_upcoming AND NOT is_exact,
                CASE
                    WHEN is_upcoming AND is_exact THEN earliest
                    WHEN is_upcoming THEN latest
                END,
                latest DESC NULLS LAST, event_id
        ) AS place
    FROM (
        SELECT
            event_id, title, displayed_date_full, date_precision, earliest, latest, coins,
            categories, impact, impact_band,
            coalesce(date_precision IN ('instant', 'day'), false) AS is_exact,
            status = 'scheduled' AND missing_since IS NULL
                AND coalesce(latest > $at::TIMESTAMPTZ, false) AS is_upcoming,
            CASE
                WHEN status <> 'scheduled' THEN status
                WHEN missing_since IS NOT NULL THEN 'missing'
            END AS state
        FROM events_as_of($at::TIMESTAMPTZ)
        WHERE list_contains(coins, $coin)
    )
)
WHERE place <= if(is_upcoming, $limit, $past_limit)
ORDER BY is_upcoming DESC, place

-- name: coin_changes
-- Grain: one row per version and kind of change of an event linked to the coin, the newest first.
-- Parameters: $coin; $at; $limit. Run twice: the same rows.
SELECT
    c.event_id, c.title, c.known_from, c.kind, c.old_value, c.new_value, v.displayed_date_full
FROM (
    SELECT *
    FROM changes
    WHERE list_contains(coins, $coin)
        AND known_from <= $at::TIMESTAMPTZ
        AND kind <> 'revealed'
    ORDER BY known_from DESC, event_id, version DESC, kind
    LIMIT $limit
) AS c
LEFT JOIN event_versions AS v ON v.event_id = c.event_id AND v.version = c.version
ORDER BY c.known_from DESC, c.event_id, c.version DESC, c.kind
