-- What decides the parts of event_steps, from the published file, which is attached and in use.
--
--     list_step_months, list_step_coins → the steps of almanac/event_steps.py → sum_steps

-- name: list_step_months
-- Grain: one row per UTC month from the first observation of events to the last, with a hash of all
-- that was known before its end: versions, absences, pulls, and coins listed on a day.
-- Parameters: none. Run twice: the same rows.
WITH looks AS (
    SELECT epoch_us(first_at) AS first_us, epoch_us(last_at) AS last_us FROM _almanac.first_look
),
months AS (
    SELECT first_us, unnest(generate_series(
        date_trunc('month', make_timestamp(first_us)),
        date_trunc('month', make_timestamp(last_us)),
        INTERVAL 1 MONTH
    )) AS month
    FROM looks
),
inputs AS (
    SELECT date_trunc('month', day) AS month, sum(hash(day, sha256)) AS total
    FROM _almanac.published
    GROUP BY ALL
    UNION ALL
    SELECT
        date_trunc('month', make_timestamp(epoch_us(changed_at))),
        sum(hash(event_id, changed_at, missing_since))
    FROM event_absences
    GROUP BY ALL
    UNION ALL
    SELECT
        date_trunc('month', make_timestamp(epoch_us(observed_at))),
        sum(hash(observed_at, feed, plan, lower, upper, coins, categories))
    FROM coverage
    GROUP BY ALL
    UNION ALL
    SELECT date_trunc('month', observed_date), sum(hash(coin, observed_at))
    FROM coin_snapshots
    WHERE observed_date IN (
        SELECT (observed_at AT TIME ZONE 'UTC')::DATE FROM coverage WHERE plan = 'free'
    )
    GROUP BY ALL
)
SELECT
    strftime(m.month, '%Y-%m') AS month,
    epoch_us(m.month) AS starts_us,
    m.first_us,
    coalesce(sum(i.total), 0)::VARCHAR AS known
FROM months AS m
LEFT JOIN inputs AS i ON i.month <= m.month
GROUP BY m.month, m.first_us
ORDER BY m.month

-- name: list_step_coins
-- Grain: one row per coin, with the UTC month in which it was first known; NULL if that is unknown.
-- Parameters: none. Run twice: the same rows.
SELECT coin, strftime(make_timestamp(min(known_us)), '%Y-%m') AS month
FROM (
    SELECT unnest(coins) AS coin, epoch_us(known_from) AS known_us FROM event_versions
    UNION ALL
    SELECT coin, epoch_us(observed_at) FROM coin_snapshots
    UNION ALL
    SELECT slug, NULL FROM coins
)
GROUP BY coin
ORDER BY coin

-- name: sum_steps
-- Grain: one row, the number of steps and the sum of their hashes.
-- Parameters: none; the view `steps` has them. Run twice: the same row.
SELECT count(*), coalesce(sum(hash(s)), 0)::VARCHAR FROM steps AS s
