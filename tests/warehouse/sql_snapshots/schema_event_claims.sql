-- name: view_event_claims
SELECT
    event_id,
    CASE WHEN has_content THEN slug END AS slug,
    CASE WHEN has_content THEN title END AS title,
    CASE WHEN has_content THEN description END AS description,
    CASE WHEN has_content THEN displayed_date END AS displayed_date,
    CASE WHEN has_content THEN date END AS date,
    CASE WHEN has_content THEN date_end END AS date_end,
    CASE WHEN has_content THEN date_type END AS date_type,
    CASE WHEN has_content THEN is_estimated END AS is_estimated,
    CASE WHEN has_content THEN categories END AS categories,
    CASE WHEN has_content THEN coins END AS coins,
    CASE WHEN has_content THEN impact END AS impact,
    CASE WHEN has_content THEN impact_band END AS impact_band,
    CASE WHEN has_content THEN impact_summary END AS impact_summary,
    CASE WHEN has_content THEN source_url END AS source_url,
    CASE WHEN has_content THEN snapshot_url END AS snapshot_url,
    CASE WHEN has_content AND last_verified_at <= start THEN last_verified_at END AS last_verified_at,
    created_at,
    CASE WHEN has_content THEN updated_at END AS updated_at,
    CASE WHEN cancelled_at <= start THEN 'cancelled' ELSE 'scheduled' END AS status,
    CASE WHEN cancelled_at <= start THEN cancelled_at END AS cancelled_at,
    CASE WHEN has_content THEN date_precision END AS date_precision,
    CASE WHEN has_content THEN earliest END AS earliest,
    CASE WHEN has_content THEN latest END AS latest,
    CASE WHEN has_content THEN displayed_date_full END AS displayed_date_full,
    CASE
        WHEN has_content AND (last_verified_at > start) IS NOT TRUE THEN unknown_fields
        ELSE list_filter(
            ['slug', 'title', 'description', 'displayed_date', 'date', 'date_end', 'date_type',
            'is_estimated', 'categories', 'coins', 'impact', 'impact_band', 'impact_summary',
            'source_url', 'snapshot_url', 'last_verified_at', 'created_at', 'updated_at'],
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
