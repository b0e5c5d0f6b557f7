-- The numbers of a report, as known at a time. None uses a version that became known later.
--
--     event_versions, reschedules                  ─▶ count_weeks
--     events_as_of, event_versions, reschedules    ─▶ count_categories
--     announcement_lead_times, event_versions      ─▶ summarise_leads, count_leads
--     batches, rejects                             ─▶ count_batches, count_rejects
--     events_as_of                                 ─▶ list_missing
--     usage, requests                              ─▶ last_usage
--     upcoming_as_of                               ─▶ list_upcoming
--     event_versions                               ─▶ mark_recent
--     coins                                        ─▶ label_coins

-- name: count_weeks
-- Grain: one row per week (Monday to Sunday, UTC) from the first pull of events until $at, the last
-- $weeks of them. `upcoming` are the events that were scheduled and not over at `begins_at`: the
-- start of the week, or the first pull in it.
-- Parameters: $first_pull_at, $at, timestamps; $weeks, a number. Run twice: the same rows.
WITH weeks AS (
    SELECT
        week,
        greatest(week AT TIME ZONE 'UTC', $first_pull_at::TIMESTAMPTZ) AS begins_at
    FROM (
        SELECT unnest(generate_series(
            greatest(
                date_trunc('week', $first_pull_at::TIMESTAMPTZ AT TIME ZONE 'UTC'),
                date_trunc('week', $at::TIMESTAMPTZ AT TIME ZONE 'UTC')
                    - to_days(7 * ($weeks::INTEGER - 1))
            ),
            date_trunc('week', $at::TIMESTAMPTZ AT TIME ZONE 'UTC'),
            INTERVAL 7 DAY
        )) AS week
    )
),
moves AS (
    SELECT date_trunc('week', known_from AT TIME ZONE 'UTC') AS week, kind, count(*) AS n
    FROM reschedules
    WHERE known_from <= $at::TIMESTAMPTZ
    GROUP BY ALL
),
kinds AS (
    SELECT date_trunc('week', known_from AT TIME ZONE 'UTC') AS week, kind, count(*) AS n
    FROM (
        SELECT known_from, unnest(change_kinds) AS kind
        FROM event_versions
        WHERE known_from <= $at::TIMESTAMPTZ
    )
    WHERE kind IN ('created', 'cancelled', 'withdrawn')
    GROUP BY ALL
),
upcoming AS (
    SELECT w.week, count(*) AS n
    FROM weeks AS w
    JOIN event_versions AS v
        ON v.known_from <= w.begins_at
        AND (v.known_to > w.begins_at OR v.known_to IS NULL)
        AND v.latest > w.begins_at
    WHERE v.status = 'scheduled'
    GROUP BY w.week
)
SELECT
    w.week::DATE AS week,
    w.begins_at,
    coalesce(any_value(u.n), 0) AS upcoming,
    coalesce(sum(k.n) FILTER (WHERE k.kind = 'created'), 0)::BIGINT AS created,
    coalesce(sum(k.n) FILTER (WHERE k.kind = 'slipped'), 0)::BIGINT AS slipped,
    coalesce(sum(k.n) FILTER (WHERE k.kind = 'pulled_in'), 0)::BIGINT AS pulled_in,
    coalesce(sum(k.n) FILTER (WHERE k.kind = 'refined'), 0)::BIGINT AS refined,
    coalesce(sum(k.n) FILTER (WHERE k.kind = 'loosened'), 0)::BIGINT AS loosened,
    coalesce(sum(k.n) FILTER (WHERE k.kind IN ('time_only', 'end_only')), 0)::BIGINT AS other_moves,
    coalesce(sum(k.n) FILTER (WHERE k.kind = 'cancelled'), 0)::BIGINT AS cancelled,
    coalesce(sum(k.n) FILTER (WHERE k.kind = 'withdrawn'), 0)::BIGINT AS withdrawn
FROM weeks AS w
LEFT JOIN (FROM moves UNION ALL FROM kinds) AS k ON k.week = w.week
LEFT JOIN upcoming AS u ON u.week = w.week
GROUP BY w.week, w.begins_at
ORDER BY w.week

-- name: count_categories
-- Grain: one row per category of an event that was known at $at, and one for all events, whose
-- category is NULL. The rules are those of category_stats and cancellation_stats, as known then:
-- shares are of `due`, the watched events whose first known date was over by the last complete pull.
-- Parameters: $at, a timestamp. Run twice: the same rows.
WITH known AS (
    SELECT
        e.event_id,
        e.categories,
        e.status,
        _almanac.was_watched(v.status, v.latest, v.known_from) AS is_watched,
        is_watched AND coalesce(v.latest <= p.last_at, false) AS is_due,
        m.event_id IS NOT NULL AS has_moved,
        coalesce(m.has_slipped, false) AS has_slipped
    FROM events_as_of($at::TIMESTAMPTZ) AS e
    JOIN event_versions AS v
        ON v.event_id = e.event_id
        AND v.known_from = e.first_seen_at
        AND _almanac.was_known(v.known_from, v.known_to)
    CROSS JOIN (
        SELECT max(observed_at) AS last_at
        FROM coverage
        WHERE feed IN ('export', 'events') AND observed_at <= $at::TIMESTAMPTZ
    ) AS p
    LEFT JOIN (
        SELECT event_id, bool_or(kind = 'slipped') AS has_slipped
        FROM reschedules
        WHERE known_from <= $at::TIMESTAMPTZ
        GROUP BY event_id
    ) AS m ON m.event_id = e.event_id
)
SELECT
    category,
    count(*) FILTER (WHERE is_watched) AS watched,
    count(*) FILTER (WHERE is_due) AS due,
    count(*) FILTER (WHERE is_due AND has_moved) AS moved_due,
    count(*) FILTER (WHERE is_due AND has_slipped) AS slipped_due,
    count(*) FILTER (WHERE is_due AND status = 'cancelled') AS cancelled_due,
    count(*) FILTER (WHERE is_watched AND NOT is_due AND has_moved) AS moved_not_due,
    count(*) FILTER (WHERE is_watched AND NOT is_due AND status = 'cancelled')
        AS cancelled_not_due
FROM (
    SELECT * EXCLUDE (categories), unnest(categories) AS category FROM known
    UNION ALL
    SELECT * EXCLUDE (categories), NULL FROM known
)
GROUP BY category
ORDER BY category IS NOT NULL, due DESC, watched DESC, category

-- name: summarise_leads
-- Grain: one row per basis of announcement_lead_times and category, as first observed; the category
-- NULL has all events. `without_lead` were announced without an exact date.
-- Parameters: $at, a timestamp. Run twice: the same rows.
WITH leads AS (
    SELECT a.basis, a.lead_days, v.categories
    FROM announcement_lead_times AS a
    JOIN event_versions AS v
        ON v.event_id = a.event_id
        AND v.known_from = a.first_seen_at
        AND _almanac.was_known(v.known_from, v.known_to)
    WHERE a.first_seen_at <= $at::TIMESTAMPTZ
)
SELECT
    basis,
    category,
    count(*) AS events,
    count(lead_days) AS with_lead,
    count(*) - count(lead_days) AS without_lead,
    quantile_cont(lead_days, 0.25) AS lower_quartile,
    quantile_cont(lead_days, 0.5) AS median,
    quantile_cont(lead_days, 0.75) AS upper_quartile
FROM (
    SELECT basis, lead_days, unnest(categories) AS category FROM leads
    UNION ALL
    SELECT basis, lead_days, NULL FROM leads
)
GROUP BY basis, category
ORDER BY basis DESC, category IS NOT NULL, with_lead DESC, category

-- name: count_leads
-- Grain: one row per range of lead times of events that were created while watched; `place` orders
-- the ranges. Parameters: $at, a timestamp. Run twice: the same rows.
SELECT r.place, r.lower_days, r.upper_days, count(a.event_id) AS events
FROM (
    VALUES
        (1, -1e9::DOUBLE, 0::DOUBLE), (2, 0, 1), (3, 1, 3), (4, 3, 7), (5, 7, 14), (6, 14, 30),
        (7, 30, 90), (8, 90, 1e9)
) AS r (place, lower_days, upper_days)
LEFT JOIN announcement_lead_times AS a
    ON a.basis = 'observed'
    AND a.first_seen_at <= $at::TIMESTAMPTZ
    AND a.lead_days >= r.lower_days
    AND a.lead_days < r.upper_days
GROUP BY ALL
ORDER BY r.place

-- name: count_batches
-- Grain: one row, the published batches that were observed until $at, and those of them after
-- $since. Parameters: $since, $at, timestamps. Run twice: the same row.
SELECT
    count(*) AS batches,
    count(*) FILTER (WHERE status = 'quarantined') AS quarantined,
    count(*) FILTER (WHERE flagged IS NOT NULL) AS flagged,
    count(*) FILTER (WHERE NOT complete) AS partial,
    coalesce(sum(arrived), 0)::BIGINT AS arrived,
    coalesce(sum(rejected), 0)::BIGINT AS rejected,
    count(*) FILTER (WHERE is_new) AS new_batches,
    count(*) FILTER (WHERE is_new AND status = 'quarantined') AS new_quarantined,
    count(*) FILTER (WHERE is_new AND flagged IS NOT NULL) AS new_flagged,
    count(*) FILTER (WHERE is_new AND NOT complete) AS new_partial,
    coalesce(sum(arrived) FILTER (WHERE is_new), 0)::BIGINT AS new_arrived,
    coalesce(sum(rejected) FILTER (WHERE is_new), 0)::BIGINT AS new_rejected
FROM (
    SELECT *, observed_at > $since::TIMESTAMPTZ AS is_new
    FROM batches
    WHERE observed_at <= $at::TIMESTAMPTZ
)

-- name: count_rejects
-- Grain: one row per reason for a rejection, the $limit most frequent of batches until $at.
-- Parameters: $at, a timestamp; $limit, a number. Run twice: the same rows.
SELECT r.reason, count(*) AS rows, max(b.observed_at) AS last_at
FROM rejects AS r
JOIN batches AS b ON b.batch_id = r.batch_id
WHERE b.observed_at <= $at::TIMESTAMPTZ
GROUP BY r.reason
ORDER BY rows DESC, r.reason
LIMIT $limit

-- name: list_missing
-- Grain: one row per scheduled event that complete pulls did not show, as known at $at: the first
-- $limit by impact. `events` counts all of them.
-- Parameters: $at, a timestamp; $limit, a number. Run twice: the same rows.
SELECT
    event_id, title, coins, displayed_date_full, impact, impact_band, missing_since, source_url,
    count(*) OVER () AS events
FROM events_as_of($at::TIMESTAMPTZ)
WHERE status = 'scheduled' AND missing_since IS NOT NULL AND latest > $at::TIMESTAMPTZ
ORDER BY impact DESC NULLS LAST, missing_since, event_id
LIMIT $limit

-- name: last_usage
-- Grain: one row, the last reading of the quota until $at, with the requests that were sent in the
-- seven days before $at; no row without a reading. The service does not count an answer 429.
-- Parameters: $at, a timestamp. Run twice: the same row.
SELECT
    u.*,
    (
        SELECT count(*)
        FROM requests
        WHERE sent_at > $at::TIMESTAMPTZ - INTERVAL 7 DAY
            AND sent_at <= $at::TIMESTAMPTZ
            AND status IS DISTINCT FROM 429
    ) AS sent_in_week,
    (
        SELECT count(*)
        FROM requests
        WHERE sent_at > u.read_at
            AND sent_at <= $at::TIMESTAMPTZ
            AND status IS DISTINCT FROM 429
    ) AS sent_since,
    (SELECT min(sent_at) FROM requests) AS first_sent_at
FROM usage AS u
WHERE u.read_at <= $at::TIMESTAMPTZ
ORDER BY u.read_at DESC
LIMIT 1

-- name: list_upcoming
-- Grain: one row per event that was scheduled, not missing and not over at $at, and that may begin
-- before $until, soonest first; as `upcoming` of the Python package selects them.
-- Parameters: $at, $until; $coins, $categories, $min_impact, $bands as in events.
-- Run twice: the same rows.
SELECT *
FROM upcoming_as_of($at::TIMESTAMPTZ)
WHERE ($coins::VARCHAR[] IS NULL OR list_has_any(coins, $coins::VARCHAR[]))
    AND {shared has_category}
    AND {shared has_impact}
    AND coalesce(earliest, $at::TIMESTAMPTZ) < $until::TIMESTAMPTZ
ORDER BY earliest NULLS LAST, latest, event_id

-- name: mark_recent
-- Grain: one row per event of $event_ids that was created, or whose date changed, after $since and at
-- or before $at. The pages show the same marks.
-- Parameters: $event_ids, $since, $at. Run twice: the same rows.
{shared recent_marks}

-- name: label_coins
-- Grain: one row per coin with a name: its ticker in capitals, or its name if other coins have the
-- same ticker. Symbol and name are current, as in coins_as_of.
-- Parameters: $coins, slugs. Run twice: the same rows.
SELECT coin, CASE WHEN is_unique THEN upper(symbol) ELSE name END AS label
FROM (
    SELECT
        slug AS coin, symbol, name,
        coalesce(symbol <> '' AND count(*) OVER (PARTITION BY lower(symbol)) = 1, false) AS is_unique
    FROM coins
)
WHERE coin IN (SELECT unnest($coins::VARCHAR[]))
