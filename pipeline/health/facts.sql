-- Questions of the health to the published file.
--
--     batches                        ─▶ find_start, list_feeds, list_gaps
--     batches, state.batch_records   ─▶ list_problems
--
-- Parameters: batches observed after $since and up to $at. They only read.

-- name: find_start
-- The day of the first batch, and the plan of the newest one: an import has the plan that the user
-- named. Grain: one row.
SELECT
    min(observed_date),
    coalesce(max_by(plan, observed_at) FILTER (WHERE NOT attested), max_by(plan, observed_at))
FROM batches
WHERE observed_at > $since AND observed_at <= $at

-- name: list_feeds
-- Grain: one row per feed that was pulled: how often, the last pull, the last complete one, and the
-- days with a complete one.
SELECT
    feed,
    count(*),
    max(observed_at),
    {shared_last_complete_pull},
    coalesce(
        list(DISTINCT (observed_at AT TIME ZONE 'UTC')::DATE) FILTER (
            WHERE complete
                AND status = 'merged'
                AND coalesce(lower <= observed_at, true)
                AND coalesce(upper >= observed_at, true)
        ),
        []
    )
FROM batches
WHERE observed_at > $since AND observed_at <= $at
GROUP BY feed

-- name: list_gaps
-- Grain: one row per span of days, both ends inclusive. `seen` is from the first to the last day
-- with a complete pull of its events and those of the next 6 days, as the lowest plan shows.
-- `unseen` are the days between without one, up to yesterday. `lost` are days whose cancellations
-- no pull has, and that the service no longer lists: it lists them for $listed_days.
WITH seen AS (
    SELECT DISTINCT observed_date AS day
    FROM batches
    WHERE feed IN ('export', 'events')
        AND complete
        AND status = 'merged'
        AND coalesce(lower <= observed_at, true)
        AND coalesce(upper >= (observed_date + 7)::TIMESTAMPTZ - INTERVAL 1 SECOND, true)
        AND observed_at > $since
        AND observed_at <= $at
),
unseen AS (
    SELECT day + 1 AS first, lead(day, 1, $at::TIMESTAMPTZ::DATE) OVER (ORDER BY day) - 1 AS last
    FROM seen
),
ends AS (SELECT $at::TIMESTAMPTZ - to_days($listed_days) AS end_at),
pulls AS (
    SELECT
        least(coalesce(b.since, observed_at - to_days($listed_days)), end_at) AS since,
        content_at AS until
    FROM batches AS b, ends
    WHERE feed = 'cancellations'
        AND complete
        AND status = 'merged'
        AND observed_at > $since
        AND observed_at <= $at
    UNION ALL
    SELECT end_at, end_at FROM ends
),
reached AS (
    SELECT
        since,
        greatest(
            (SELECT min(observed_date)::TIMESTAMPTZ FROM batches WHERE observed_at > $since),
            max(until) OVER (ORDER BY until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        ) AS before
    FROM pulls
)
SELECT 'seen' AS kind, min(day) AS first, max(day) AS last FROM seen HAVING count(*) > 0
UNION ALL
SELECT 'unseen', first, last FROM unseen WHERE first <= last
UNION ALL
SELECT 'lost', before::DATE, since::DATE FROM reached WHERE since > before
ORDER BY first

-- name: list_problems
-- Grain: one row per problem of a batch, oldest first. An incomplete or flagged batch is no problem
-- after a complete pull of all of its scope. $dismissed are batches that a person has dismissed.
WITH recent AS (
    SELECT
        *,
        if(feed = 'export', 'events', feed) AS kind,
        coalesce(why_incomplete, flagged) AS doubt
    FROM batches
    WHERE observed_at > $since AND observed_at <= $at
)
SELECT 'quarantined' AS problem, batch_id, observed_at, coalesce(why, ''), arrived
FROM recent
WHERE status = 'quarantined' AND NOT list_contains($dismissed, batch_id)
UNION ALL
SELECT 'rejected', batch_id, observed_at, '', rejected
FROM recent
WHERE rejected > 0
UNION ALL
SELECT 'undated', batch_id, observed_at, date_doubt, arrived
FROM recent
WHERE date_doubt IS NOT NULL
UNION ALL
SELECT 'key_repeated', batch_id, observed_at, '', arrived
FROM recent
JOIN state.batch_records USING (batch_id)
WHERE (record ->> '$.redacted')::INTEGER > 0
UNION ALL
SELECT 'incomplete', batch_id, observed_at, doubt, arrived
FROM recent AS b
WHERE status = 'merged'
    AND doubt IS NOT NULL
    AND NOT EXISTS (
        SELECT 1
        FROM recent AS later
        WHERE later.observed_at > b.observed_at
            AND later.complete
            AND later.status = 'merged'
            AND later.flagged IS NULL
            AND later.kind = b.kind
            AND later.event_id IS NOT DISTINCT FROM b.event_id
            AND (later.coins IS NULL OR later.coins = b.coins)
            AND (later.categories IS NULL OR later.categories = b.categories)
            AND (later.lower IS NULL OR later.lower <= b.lower)
            AND (later.upper IS NULL OR later.upper >= b.upper)
    )
ORDER BY observed_at, batch_id
