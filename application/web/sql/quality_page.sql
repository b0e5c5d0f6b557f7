-- Pulls and the state of the data by a time, for the page of data quality. Only the published file is
-- read, and of it only batches that were observed by then.
--
--     batches                     ─▶ list_pulled_feeds, list_pull_days, list_suspect_batches
--     rejects, batches            ─▶ list_rejects
--     coverage_at                 ─▶ list_windows
--     page_events                 ─▶ list_missing_then
--     event_versions, the rest    ─▶ count_published

-- name: list_pulled_feeds
-- Grain: one row per feed that was pulled by $at: the last pull and the last complete one.
-- Parameters: $at. Run twice: the same rows.
SELECT
    feed,
    count(*) AS batches,
    max(observed_at) AS observed_at,
    {shared_last_complete_pull} AS complete_at
FROM batches
WHERE observed_at <= $at::TIMESTAMPTZ
GROUP BY feed
ORDER BY feed

-- name: list_pull_days
-- Grain: one row per UTC day from the first pull of events to the day of $at: complete pulls of
-- events whose dates include the day, and all pulls of events.
-- Parameters: $at. Run twice: the same rows.
WITH pulls AS (
    SELECT
        _almanac.day_of(observed_at) AS day,
        complete
            AND status = 'merged'
            AND coalesce(lower <= observed_at, true)
            AND coalesce(upper >= observed_at, true) AS is_complete
    FROM batches
    WHERE feed IN ('export', 'events') AND observed_at <= $at::TIMESTAMPTZ
),
days AS (
    SELECT unnest(
        generate_series(min(day), _almanac.day_of($at::TIMESTAMPTZ), INTERVAL 1 DAY)
    )::DATE AS day
    FROM pulls
)
SELECT
    d.day,
    count(*) FILTER (WHERE p.is_complete) AS complete,
    count(*) FILTER (WHERE NOT p.is_complete) AS partial
FROM days AS d
LEFT JOIN pulls AS p USING (day)
GROUP BY d.day
ORDER BY d.day

-- name: list_windows
-- Grain: one row per feed, plan, window and filters: the last complete pull by $at.
-- Parameters: $at, not before the first pull. Run twice: the same rows.
SELECT feed, plan, lower, upper, since, coins, categories, observed_at, rows
FROM coverage_at($at::TIMESTAMPTZ)
ORDER BY feed, observed_at DESC, batch_id

-- name: list_suspect_batches
-- Grain: one row per batch that is in quarantine, flagged or incomplete, newest first, at most
-- $limit. `total` counts all.
-- Parameters: $at, $limit. Run twice: the same rows.
SELECT
    batch_id, feed, status, observed_at, complete,
    coalesce(why, flagged, why_incomplete) AS reason,
    flagged IS NOT NULL AS is_flagged,
    count(*) OVER () AS total
FROM batches
WHERE observed_at <= $at::TIMESTAMPTZ
    AND (status = 'quarantined' OR flagged IS NOT NULL OR NOT complete)
ORDER BY observed_at DESC, batch_id
LIMIT $limit

-- name: list_rejects
-- Grain: one row per reason for a rejection, the $limit most frequent; `total` counts all rows and
-- `reasons` all reasons.
-- Parameters: $at, $limit. Run twice: the same rows.
SELECT
    r.reason,
    count(*) AS rows,
    max(b.observed_at) AS last_at,
    sum(count(*)) OVER ()::BIGINT AS total,
    count(*) OVER () AS reasons
FROM rejects AS r
JOIN batches AS b ON b.batch_id = r.batch_id
WHERE b.observed_at <= $at::TIMESTAMPTZ
GROUP BY r.reason
ORDER BY count(*) DESC, r.reason
LIMIT $limit

-- name: list_missing_then
-- Grain: one row per scheduled event that complete pulls did not show at $at, the latest first, at
-- most $limit. `total` counts all.
-- Parameters: $at, $limit. Run twice: the same rows.
SELECT
    event_id, title, displayed_date_full, source_url, missing_since, impact, impact_band,
    impact_step, count(*) OVER () AS total
FROM page_events
WHERE gone = 'missing' AND NOT is_former AND missing_since <= $at::TIMESTAMPTZ
ORDER BY missing_since DESC, event_id
LIMIT $limit

-- name: count_published
-- Grain: one row: events and versions known at $at, events with a doubtful date, batches, their sources,
-- rows, rejected rows and bytes.
-- Parameters: $at. Run twice: the same row.
SELECT *
FROM (
    SELECT
        count(*) FILTER (WHERE version = 1) AS events,
        count(*) AS versions,
        count(date_doubt) FILTER (WHERE known_to > $at::TIMESTAMPTZ OR known_to IS NULL) AS doubtful_dates
    FROM event_versions
    WHERE known_from <= $at::TIMESTAMPTZ
),
(
    SELECT
        count(*) AS batches,
        coalesce(sum(arrived), 0)::BIGINT AS arrived,
        coalesce(sum(rejected), 0)::BIGINT AS rejected,
        coalesce(sum(bytes), 0)::BIGINT AS bytes,
        list(DISTINCT source ORDER BY source) FILTER (source IS NOT NULL) AS sources
    FROM batches
    WHERE observed_at <= $at::TIMESTAMPTZ
)
