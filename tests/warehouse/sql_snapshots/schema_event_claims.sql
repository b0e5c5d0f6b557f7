-- name: view_event_claims
SELECT
    event_id,
    if(has_content, slug, NULL) AS slug,
    if(has_content, title, NULL) AS title,
    if(has_content, description, NULL) AS description,
    if(has_content, displayed_date, NULL) AS displayed_date,
    if(has_content, date, NULL) AS date,
    if(has_content, date_end, NULL) AS date_end,
    if(has_content, date_type, NULL) AS date_type,
    if(has_content, is_estimated, NULL) AS is_estimated,
    if(has_content, categories, NULL) AS categories,
    if(has_content, coins, NULL) AS coins,
    if(has_content, impact, NULL) AS impact,
    if(has_content, impact_band, NULL) AS impact_band,
    if(has_content, impact_summary, NULL) AS impact_summary,
    if(has_content, source_url, NULL) AS source_url,
    if(has_content, snapshot_url, NULL) AS snapshot_url,
    if(has_content AND last_verified_at <= start, last_verified_at, NULL) AS last_verified_at,
    created_at,
    if(has_content, updated_at, NULL) AS updated_at,
    if(cancelled_at <= start, 'cancelled', 'scheduled') AS status,
    if(cancelled_at <= start, cancelled_at, NULL) AS cancelled_at,
    if(has_content, date_precision, NULL) AS date_precision,
    if(has_content, earliest, NULL) AS earliest,
    if(has_content, latest, NULL) AS latest,
    if(has_content, displayed_date_full, NULL) AS displayed_date_full,
    CASE
        WHEN has_content AND (last_verified_at > start) IS NOT TRUE THEN unknown_fields
        ELSE list_filter(
            ['slug', 'title', 'description', 'displayed_date', 'date', 'date_end', 'date_type',
            'is_estimated', 'categories', 'coins', 'impact', 'impact_band', 'impact_summary',
            'source_url', 'snapshot_url', 'last_verified_at', 'created_at', 'updated_at'],
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
