-- name: macro_coverage_at
-- Grain: one row per feed, plan, window and filters: its last complete pull at or before `ts`. A
-- window is the same if its dates are, or if they are as many days from the day of the pull.
-- An error for an instant without an answer, as events_as_of.
-- Parameters: ts, an instant as in events_as_of.
CREATE MACRO coverage_at(ts) AS TABLE
SELECT
    feed, plan, lower, upper, coins, categories, since, observed_at, content_at,
    (epoch_us(_almanac.instant(ts)) - epoch_us(observed_at)) / 3600e6 AS age_hours,
    rows, batch_id
FROM (
    SELECT
        feed, plan, lower, upper, coins, categories, since, observed_at, content_at, rows, batch_id,
        _almanac.day_of(lower) - _almanac.day_of(observed_at) AS days_to_lower,
        _almanac.day_of(upper) - _almanac.day_of(observed_at) AS days_to_upper
    FROM coverage
    WHERE observed_at <= _almanac.instant(ts)
)
QUALIFY
    row_number() OVER (
        PARTITION BY feed, plan, coins, categories, lower, upper
        ORDER BY observed_at DESC, batch_id DESC
    ) = 1
    AND row_number() OVER (
        PARTITION BY feed, plan, coins, categories, days_to_lower, days_to_upper
        ORDER BY observed_at DESC, batch_id DESC
    ) = 1
UNION ALL
SELECT
    feed, plan, lower, upper, coins, categories, since, observed_at, content_at,
    epoch_us(observed_at) / 1e6, rows, batch_id
FROM coverage,
    (
        SELECT _almanac.refused('coverage_at', 'events', ts, moment, first_at, last_at, '') AS is_wrong
        FROM (SELECT *, _almanac.instant(ts) AS moment FROM _almanac.first_look)
    ) AS checked
WHERE checked.is_wrong
