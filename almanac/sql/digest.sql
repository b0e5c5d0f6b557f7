-- What became known in a period, for a digest. A version may have several kinds of
-- change, and each is a row, as in `changes`.
--
--     batches                              ─▶ last_known
--     changes, event_versions              ─▶ digest_counts
--     changes, event_versions, reschedules ─▶ digest_rows

-- name: last_known
-- Grain: one row, the instant of the last pull whose changes are published, NULL if there was none; and
-- the feed of changes with its last place.
-- Parameters: none. Run twice: the same row.
SELECT
    (SELECT max(observed_at) FROM batches WHERE status = 'merged') AS known_at,
    (SELECT value FROM _almanac.facts WHERE name = 'feed_id') AS feed_id,
    (SELECT coalesce(max(published_seq), 0) FROM event_versions) AS place

-- name: digest_counts
-- Grain: one row per kind of change in the period.
-- Parameters: $since, $until, instants; $kinds, $coins, $categories, lists or NULL; $min_impact, a score
-- or NULL; $bands, the bands that lie above it as a whole. Run twice: the same rows.
-- `unscored` are changes of events without a known impact, which a least impact leaves out.
SELECT
    kind,
    count(*) FILTER (is_shown) AS changes,
    count(DISTINCT event_id) FILTER (is_shown) AS events,
    count(*) FILTER (NOT is_shown AND impact IS NULL AND impact_band IS NULL) AS unscored
FROM (
    SELECT
        c.kind, c.event_id, c.impact, c.impact_band,
        coalesce(
            $min_impact::DOUBLE IS NULL
            OR c.impact >= $min_impact::DOUBLE
            OR (c.impact IS NULL AND list_contains($bands::VARCHAR[], c.impact_band)),
            false
        ) AS is_shown
    FROM changes AS c
    JOIN event_versions AS v ON v.event_id = c.event_id AND v.version = c.version
    WHERE c.known_from > $since::TIMESTAMPTZ
        AND c.known_from <= $until::TIMESTAMPTZ
        AND ($kinds::VARCHAR[] IS NULL OR list_contains($kinds::VARCHAR[], c.kind))
        AND ($coins::VARCHAR[] IS NULL OR list_has_any(c.coins, $coins::VARCHAR[]))
        AND {shared_has_category}
)
GROUP BY kind
ORDER BY kind

-- name: digest_rows
-- Grain: one row per version and kind of change in the period, of the first $limit events of each
-- kind: those of the highest impact (the middle of a band without a score), of the same impact the
-- soonest; then those that are over. `last_date` is the date as known at $until.
-- Parameters: as digest_counts; $limit, a number or NULL; $revealed, whether to have the rows of
-- that kind, which are as many as there are events after a first pull.
-- Run twice: the same rows.
WITH found AS (
    SELECT
        c.kind, c.event_id, c.version, c.known_from, c.title, c.coins, c.old_value, c.new_value,
        c.impact, c.impact_band, v.categories, v.status, v.displayed_date_full AS displayed_date,
        v.date_precision, v.earliest, v.latest, v.source_url, v.change_kinds, v.changed_fields,
        last_value(v.latest) OVER per_event AS last_latest,
        last_value(coalesce(c.impact, CASE c.impact_band
            WHEN 'Critical' THEN 8.75
            WHEN 'High' THEN 6.25
            WHEN 'Mid' THEN 3.75
            WHEN 'Low' THEN 1.25
        END, -1)) OVER per_event AS score
    FROM changes AS c
    JOIN event_versions AS v ON v.event_id = c.event_id AND v.version = c.version
    WHERE c.known_from > $since::TIMESTAMPTZ
        AND c.known_from <= $until::TIMESTAMPTZ
        AND ($kinds::VARCHAR[] IS NULL OR list_contains($kinds::VARCHAR[], c.kind))
        AND (c.kind <> 'revealed' OR $revealed)
        AND ($coins::VARCHAR[] IS NULL OR list_has_any(c.coins, $coins::VARCHAR[]))
        AND {shared_has_category}
        AND (
            $min_impact::DOUBLE IS NULL
            OR c.impact >= $min_impact::DOUBLE
            OR (c.impact IS NULL AND list_contains($bands::VARCHAR[], c.impact_band))
        )
    WINDOW per_event AS (
        PARTITION BY c.kind, c.event_id ORDER BY c.version
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    )
),
ranked AS (
    SELECT
        *,
        coalesce(last_latest <= $until::TIMESTAMPTZ, false) AS is_over,
        dense_rank() OVER (
            PARTITION BY kind
            ORDER BY is_over, score DESC, last_latest NULLS LAST, event_id
        ) AS place
    FROM found
)
SELECT
    r.* EXCLUDE (last_latest), n.displayed_date_full AS last_date,
    m.shift_days, m.least_shift_days, m.most_shift_days
FROM ranked AS r
JOIN event_versions AS n
    ON n.event_id = r.event_id
    AND n.known_from <= $until::TIMESTAMPTZ
    AND (n.known_to > $until::TIMESTAMPTZ OR n.known_to IS NULL)
LEFT JOIN (
    SELECT event_id, version, shift_days, least_shift_days, most_shift_days
    FROM reschedules
    WHERE known_from > $since::TIMESTAMPTZ AND known_from <= $until::TIMESTAMPTZ
) AS m ON m.event_id = r.event_id AND m.version = r.version
WHERE $limit::BIGINT IS NULL OR r.place <= $limit::BIGINT
ORDER BY r.kind, r.place, r.version
