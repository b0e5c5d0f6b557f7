-- What was known of events, in the order in which it became known.
--
--     event_versions, event_absences ─▶ instants of a change ─▶ what was known from each ─▶ replay

-- name: replay
-- Grain: one row per event and instant at which what was known of it changed: by a version, or by
-- beginning or ceasing to be missing. Oldest first. An event is included from the first version on
-- that is linked to one of $coins, so that none is selected by what became known later.
-- Parameters: $coins, a list of slugs or NULL; $start, an instant or NULL: what was known then of
-- events that were not over comes first, dated $start. Run twice: the same rows.
WITH
changes AS (
    SELECT event_id, known_from AS changed_at FROM event_versions
    UNION
    SELECT event_id, changed_at FROM event_absences
),
known AS (
    SELECT
        v.*,
        c.changed_at,
        a.missing_since,
        lead(c.changed_at) OVER by_time AS next_at,
        coalesce(bool_or(list_has_any(v.coins, $coins::VARCHAR[])) OVER by_time, false) AS is_linked
    FROM changes AS c
    -- Not a version that another replaced at the same instant: it was known at no time.
    INNER JOIN event_versions AS v
        ON
            v.event_id = c.event_id
            AND v.known_from <= c.changed_at
            AND coalesce(v.known_to > c.changed_at, true)
    -- An event has at most one absence at an instant, so the nearest is unique.
    ASOF LEFT JOIN event_absences AS a ON a.event_id = c.event_id AND a.changed_at <= c.changed_at
    WINDOW by_time AS (PARTITION BY c.event_id ORDER BY c.changed_at)
)
SELECT
    event_id,
    version,
    title,
    array_to_string(coins, ';') AS coins,
    array_to_string(categories, ';') AS categories,
    status,
    missing_since IS NOT NULL AS is_missing,
    date_precision,
    -- The deadline of an estimated event is never its date.
    if(date_precision IN ('instant', 'day'), epoch_us(date), NULL) AS date_us,
    epoch_us(earliest) AS earliest_us,
    epoch_us(latest) AS latest_us,
    impact,
    impact_band,
    epoch_us(least(coalesce(content_at, known_from), changed_at)) AS happened_us,
    epoch_us(greatest(changed_at, coalesce($start::TIMESTAMPTZ, changed_at))) AS known_us
FROM known
WHERE
    (is_linked OR $coins::VARCHAR[] IS NULL)
    AND (
        $start::TIMESTAMPTZ IS NULL
        OR changed_at >= $start::TIMESTAMPTZ
        OR (
            coalesce(next_at > $start::TIMESTAMPTZ, true)
            AND coalesce(latest > $start::TIMESTAMPTZ, true)
        )
    )
ORDER BY known_us, changed_at, event_id
