-- What earlier events did, as known at a time.

-- name: observed_span
-- Grain: one row: the first and last complete pull of events that were observed by $at.
-- Parameters: $at. Run twice: the same row.
SELECT min(observed_at) AS first_at, max(observed_at) AS last_at
FROM coverage
WHERE feed IN ('export', 'events') AND observed_at <= $at::TIMESTAMPTZ

-- name: track_records
-- Grain: one row per category and precision of the events that were upcoming at $since, with what
-- became known of them until $until: their number, shares, and the median days of their slips. Category
-- NULL has all events.
-- Parameters: $since, $until, within what was observed. Run twice: the same rows.
SELECT
    r.category, r.date_precision,
    sum(r.cohort)::BIGINT AS events,
    sum(r.slipped) / sum(r.cohort) AS slipped,
    sum(r.pulled_in) / sum(r.cohort) AS pulled_in,
    (sum(r.cancelled) + sum(r.withdrawn)) / sum(r.cohort) AS cancelled,
    sum(r.held) / sum(r.cohort) AS held,
    any_value(m.days) AS days
FROM slip_rates($since::TIMESTAMPTZ, $until::TIMESTAMPTZ - $since::TIMESTAMPTZ) AS r
LEFT JOIN (
    SELECT category, date_precision, median(shift_days) AS days
    FROM (
        SELECT
            unnest(list_concat([NULL], coalesce(v.categories, []))) AS category,
            v.date_precision, m.shift_days
        FROM reschedules AS m
        JOIN event_versions AS v
            ON v.event_id = m.event_id
            AND v.known_from <= $since::TIMESTAMPTZ
            AND (v.known_to > $since::TIMESTAMPTZ OR v.known_to IS NULL)
        WHERE m.kind = 'slipped'
            AND m.known_from > $since::TIMESTAMPTZ
            AND m.known_from <= $until::TIMESTAMPTZ
    )
    GROUP BY category, date_precision
) AS m ON m.category IS NOT DISTINCT FROM r.category AND m.date_precision = r.date_precision
GROUP BY r.category, r.date_precision
ORDER BY r.category NULLS FIRST, r.date_precision
