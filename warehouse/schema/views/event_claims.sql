-- What the service says of the time before an event was first observed, from its first version.

-- name: view_event_claims
-- Grain: one row per claimed version. A first version has one for each instant before it that the
-- service names: when it was created, last updated and cancelled. They end at the next one, the last
-- at the first version. From the last update on the content is that of the first version, without a
-- verification that came later; before, only created_at is known.
SELECT
    event_id,
    {each fields before last_verified_at: CASE WHEN has_content THEN @name END AS @name},
    CASE WHEN has_content AND last_verified_at <= start THEN last_verified_at END AS last_verified_at,
    created_at,
    {each fields after created_at: CASE WHEN has_content THEN @name END AS @name},
    CASE WHEN cancelled_at <= start THEN 'cancelled' ELSE 'scheduled' END AS status,
    CASE WHEN cancelled_at <= start THEN cancelled_at END AS cancelled_at,
    {each dating: CASE WHEN has_content THEN @name END AS @name},
    CASE
        WHEN has_content AND (last_verified_at > start) IS NOT TRUE THEN unknown_fields
        ELSE list_filter(
            [{each fields: '@name'}],
            lambda field: list_contains(unknown_fields, field)
                OR CASE WHEN has_content THEN field = 'last_verified_at' ELSE field <> 'created_at' END
        )
    END AS unknown_fields,
    CASE WHEN has_content THEN extra END AS extra,
    NULL::TIMESTAMPTZ AS first_seen_at,
    (place - len(starts))::INTEGER AS version,
    start AS known_from,
    coalesce(starts[place + 1], observed_from) AS known_to,
    'claimed' AS known_basis,
    list_filter([
        CASE WHEN start = created_at THEN 'created' END, CASE WHEN start = cancelled_at THEN 'cancelled' END
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
                    CASE WHEN status = 'cancelled' THEN cancelled_at END AS cancelled_at
                ),
                known_from AS observed_from,
                -- A creation more than a day after the observation is not believed.
                list_sort(list_distinct(list_filter(
                    [created_at, updated_at, CASE WHEN status = 'cancelled' THEN cancelled_at END],
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
