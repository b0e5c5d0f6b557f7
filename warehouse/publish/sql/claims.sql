-- What the service says of the time before an event was first observed, from its first version.
--
--     select_event_claims → check_claims

-- name: select_event_claims
-- Grain: one row per claimed version. A first version has one for each instant before it that the
-- service names: when it was created, last updated and cancelled. They end at the next one, the last
-- at the first version. From the last update on the content is that of the first version, without a
-- verification that came later; before, only created_at is known.
-- Parameters: $changes, files of the change log. Run twice: the same rows.
SELECT
    c.* EXCLUDE (known, extra),
    _almanac.date_precision(date, date_type, is_estimated) AS date_precision,
    _almanac.earliest(date, date_precision, is_estimated) AS earliest,
    _almanac.latest(date, date_end, date_precision, earliest) AS latest,
    _almanac.displayed_date_full(displayed_date, date, date_end) AS displayed_date_full,
    u.unknown_fields, c.extra::JSON AS extra,
    NULL::TIMESTAMPTZ AS first_seen_at
FROM (
    SELECT
        event_id,
        (place - len(starts))::INTEGER AS version,
        start AS known_from,
        coalesce(starts[place + 1], known_from) AS known_to,
        'claimed' AS known_basis,
        list_filter([
            if(start = created_at, 'created', NULL), if(start = cancelled_at, 'cancelled', NULL)
        ], lambda kind: kind IS NOT NULL) AS change_kinds,
        []::VARCHAR[] AS changed_fields,
        batch_id, feed, plan,
        start AS content_at,
        {each fields before last_verified_at: if(has_content, @name, NULL) AS @name},
        if(has_content AND last_verified_at <= start, last_verified_at, NULL) AS last_verified_at,
        created_at,
        {each fields after created_at: if(has_content, @name, NULL) AS @name},
        if(cancelled_at <= start, 'cancelled', 'scheduled') AS status,
        if(cancelled_at <= start, cancelled_at, NULL) AS cancelled_at,
        -- The masks that find_unknown_fields makes of each first version's.
        CASE
            WHEN NOT has_content
                THEN known & (1 << (list_position([{each fields: '@name'}], 'created_at') - 1))
            WHEN last_verified_at > start THEN known
                & ~(1::BIGINT << (list_position([{each fields: '@name'}], 'last_verified_at') - 1))
            ELSE known
        END AS known,
        if(has_content, extra, NULL) AS extra
    FROM (
        SELECT
            *,
            starts[place] AS start,
            coalesce(updated_at <= starts[place], false) AS has_content
        FROM (
            SELECT *, unnest(range(1, len(starts) + 1)) AS place
            FROM (
                SELECT
                    * REPLACE (if(status = 'cancelled', cancelled_at, NULL) AS cancelled_at),
                    -- A creation more than a day after the observation is not believed.
                    list_sort(list_distinct(list_filter(
                        [created_at, updated_at, if(status = 'cancelled', cancelled_at, NULL)],
                        lambda instant: instant < known_from
                            AND (created_at IS NULL
                                OR created_at > known_from + INTERVAL 1 DAY
                                OR instant >= created_at)
                    ))) AS starts
                FROM read_parquet($changes, hive_partitioning = false)
                WHERE version = 1
            )
        )
    )
) AS c
JOIN unknown_fields AS u ON u.known = c.known

-- name: check_claims
-- Grain: one row per event whose claimed versions break a rule, three at most: they are numbered
-- without gap or repetition up to 0, begin before they end, and end where the first version begins.
-- Parameters: $everything; else only the events in `touched`. Run twice: the same rows.
SELECT c.event_id, c.first AS first_claim, c.last AS last_claim, c.rows AS claims
FROM (
    SELECT
        event_id,
        count(*) AS rows,
        min(version) AS first,
        max(version) AS last,
        count(*) FILTER (known_to <= known_from) AS reversed,
        max(known_to) AS ends_at
    FROM event_claims
    WHERE $everything OR event_id IN (SELECT event_id FROM touched)
    GROUP BY event_id
) AS c
LEFT JOIN event_versions AS v ON v.event_id = c.event_id AND v.version = 1
WHERE c.last <> 0
    OR c.rows <> 1 - c.first
    OR c.reversed > 0
    OR c.ends_at IS DISTINCT FROM v.known_from
ORDER BY 1
LIMIT 3
