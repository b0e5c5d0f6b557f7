-- name: find_seen_differences
CREATE OR REPLACE TEMP TABLE seen_differences AS
SELECT
    coalesce(e.event_id, s.event_id) AS event_id,
    e.place, s.last_seen_at, s.content_at, s.missing_since,
    e.missing_since IS DISTINCT FROM s.missing_since AS is_missing_changed,
    e.event_id IS NULL
        OR s.event_id IS NULL
        OR e.unknown_fields IS DISTINCT FROM s.unknown_fields
        OR e.extra IS DISTINCT FROM s.extra
        OR row(e.last_verified_at, e.updated_at) IS DISTINCT FROM row(s.last_verified_at, s.updated_at)
        AS is_replaced
FROM (
    SELECT
        rowid AS place, event_id, last_seen_at, content_at, missing_since, unknown_fields,
        extra::VARCHAR AS extra, last_verified_at, updated_at
    FROM events
) AS e
FULL JOIN (
    SELECT
        s.event_id, s.last_seen_at, s.content_at, s.missing_since, u.unknown_fields, s.extra,
        s.last_verified_at, s.updated_at
    FROM read_parquet($seen, hive_partitioning = false) AS s
    JOIN unknown_fields AS u ON u.known = s.known
) AS s ON s.event_id = e.event_id
WHERE is_replaced
    OR is_missing_changed
    OR e.last_seen_at IS DISTINCT FROM s.last_seen_at
    OR e.content_at IS DISTINCT FROM s.content_at
