-- What the service says of the time before an event was first observed, from its first version.

-- name: view_event_claims
-- Grain: one row per claimed version. A first version has one for each instant before it that the
-- service names: when it was created, last updated and cancelled. They end at the next one, the last
-- at the first version. From the last update on the content is that of the first version, without a
-- verification that came later; before, only created_at is known.
-- Parameters: none. Run twice: the same rows.
SELECT
    event_id,
    {each fields before last_verified_at: if(has_content, @name, NULL) AS @name},
    if(has_content AND last_verified_at <= start, last_verified_at, NULL) AS last_verified_at,
    created_at,
    {each fields after created_at: if(has_content, @name, NULL) AS @name},
    if(cancelled_at <= start, 'cancelled', 'scheduled') AS status,
    if(cancelled_at <= start, cancelled_at, NULL) AS cancelled_at,
    {each dating: if(has_content, @name, NULL) AS @name},
    CASE
        WHEN has_content AND (last_verified_at > start) IS NOT TRUE THEN unknown_fields
        ELSE list_filter(
            [{each fields: '@name'}],
            lambda field: list_contains(unknown_fields, field)
                OR if(has_content, field = 'last_verified_at', field <> 'created_at')
        )
    END AS unknown_fields,
    if(has_content, extra, NULL) AS extra,
    NULL::TIMESTAMPTZ AS first_seen_at,
    (place - len(starts))::INTEGER AS version,
    start AS known_from,
    coalesce(starts[place + 1], observed_from) AS known_to,
    'claimed' AS known_basis,
    list_filter([
        if(start = created_at, 'created', NULL), if(start = cancelled_at, 'cancelled', NULL)
    ], lambda kind: kind IS NOT NULL) AS change_kinds,
    []::VARCHAR[] AS changed_fields,
    batch_id, feed, plan,
    start AS content_at
FROM (
    SELECT
        *,
        starts[place] AS start,
        coalesce(updated_at <= starts[place], false) AS has_content
    FROM (
        SELECT *, unnest(range(1, len(starts) + 1)) AS place
        FROM (
            SELECT
                * EXCLUDE (known_from) REPLACE (
                    if(status = 'cancelled', cancelled_at, NULL) AS cancelled_at
                ),
                known_from AS observed_from,
                -- A creation more than a day after the observation is not believed.
                list_sort(list_distinct(list_filter(
                    [created_at, updated_at, if(status = 'cancelled', cancelled_at, NULL)],
                    lambda instant: instant < known_from
                        AND (created_at IS NULL
                            OR created_at > known_from + INTERVAL 24 HOURS
                            OR instant >= created_at)
                ))) AS starts
            FROM event_versions
            WHERE version = 1
        )
    )
)
