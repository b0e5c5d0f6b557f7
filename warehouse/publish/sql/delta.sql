-- The rows that a delta touches, and the updates of links to coins and categories.
--
--     find_unknown_fields → find_changed_batches
--     → find_seen_differences → find_touched → find_gone_events → count_in_content
--     → delete_gone_events → update_seen → count_missing_changes
--     | clear_touched → count_content_changes (in full)
--     → update_coin_names, update_category_ids

-- name: find_unknown_fields
-- Grain: one row per set of known fields among versions and events, with the names of the others.
-- Parameters: $files, where they are; $names, the fields in the order of their bits.
-- Run twice: made again.
CREATE OR REPLACE TEMP TABLE unknown_fields AS
SELECT
    known,
    list_filter($names, lambda name, place: (known & (1::BIGINT << (place - 1))) = 0)
        AS unknown_fields
FROM (
    SELECT DISTINCT known
    FROM read_parquet($files, union_by_name = true, hive_partitioning = false)
)

-- name: find_changed_batches
-- Grain: one row per batch of the days that changed, as published and as they are now.
-- Parameters: none. Run twice: made again.
CREATE OR REPLACE TEMP TABLE changed_batches AS
SELECT batch_id FROM have_batches
UNION
SELECT batch_id FROM want_batches

-- name: find_seen_differences
-- Grain: one row per event that was seen otherwise than published, with its place in the table; NULL
-- for a new event. `is_replaced`: more differs than the columns that are updated in place.
-- Parameters: $seen, a file of the checkpoint. Run twice: made again.
CREATE OR REPLACE TEMP TABLE seen_differences AS
SELECT
    coalesce(e.event_id, s.event_id) AS event_id,
    e.place, s.last_seen_at, s.content_at, s.missing_since,
    e.missing_since IS DISTINCT FROM s.missing_since AS is_missing_changed,
    e.event_id IS NULL
        OR s.event_id IS NULL
        OR e.unknown_fields IS DISTINCT FROM s.unknown_fields
        OR e.extra IS DISTINCT FROM s.extra
        OR row({each uncompared: e.@name}) IS DISTINCT FROM row({each uncompared: s.@name})
        AS is_replaced
FROM (
    SELECT
        rowid AS place, event_id, last_seen_at, content_at, missing_since, unknown_fields,
        extra::VARCHAR AS extra, {each uncompared: @name}
    FROM events
) AS e
FULL JOIN (
    SELECT
        s.event_id, s.last_seen_at, s.content_at, s.missing_since, u.unknown_fields, s.extra,
        {each uncompared: s.@name}
    FROM read_parquet($seen, hive_partitioning = false) AS s
    JOIN unknown_fields AS u ON u.known = s.known
) AS s ON s.event_id = e.event_id
WHERE is_replaced
    OR is_missing_changed
    OR e.last_seen_at IS DISTINCT FROM s.last_seen_at
    OR e.content_at IS DISTINCT FROM s.content_at

-- name: count_missing_changes
-- Grain: one row, the number of events whose `missing_since` differs, updated in place.
-- Parameters: none. Run twice: the same row.
SELECT count(*) FROM seen_differences WHERE is_missing_changed AND NOT is_replaced

-- name: find_touched
-- Grain: one row per event whose row may differ from the published one in more than the columns that
-- are updated in place, with its place in the table; NULL for a new event. The content of an event is
-- that of its newest version, so it differs only if a version does.
-- Parameters: none. Run twice: made again.
CREATE OR REPLACE TEMP TABLE touched AS
SELECT t.event_id, e.place
FROM (
    SELECT event_id FROM seen_differences WHERE is_replaced
    UNION
    SELECT event_id FROM gone_event_versions
    UNION
    SELECT event_id FROM new_event_versions
) AS t
LEFT JOIN (SELECT event_id, rowid AS place FROM events) AS e ON e.event_id = t.event_id

-- name: count_in_content
-- Grain: one row, the number of touched events that are not in $content_changes.
-- Parameters: $content_changes, a file of the checkpoint. Run twice: the same row.
SELECT count(*)
FROM touched AS t
ANTI JOIN read_parquet($content_changes, hive_partitioning = false) AS c ON c.event_id = t.event_id

-- name: count_content_changes
-- Grain: one row, the number of events whose content differs from the content file.
-- Parameters: $content_changes, a file of the checkpoint. Run twice: the same row.
SELECT count(*) FROM read_parquet($content_changes, hive_partitioning = false)

-- name: find_gone_events
-- Grain: one row per touched event, as published.
-- Parameters: none. Run twice: made again.
CREATE OR REPLACE TEMP TABLE gone_events AS
SELECT * FROM events WHERE rowid IN (SELECT place FROM touched)

-- name: delete_gone_events
-- Grain: one row per touched event. Parameters: none. Run twice: changes nothing.
DELETE FROM events WHERE rowid IN (SELECT place FROM touched)

-- name: update_seen
-- Grain: one row per event that was seen otherwise than published and is not replaced.
-- Parameters: none. Run twice: changes nothing.
UPDATE events
SET last_seen_at = s.last_seen_at, content_at = s.content_at, missing_since = s.missing_since
FROM seen_differences AS s
WHERE events.rowid = s.place AND NOT s.is_replaced

-- name: clear_touched
-- Grain: no row. A full build checks everything, whatever was touched.
-- Parameters: none. Run twice: empty again.
CREATE OR REPLACE TEMP TABLE touched (event_id VARCHAR)

-- name: update_coin_names
-- Grain: one row per event and coin whose names changed: they follow from the slug, as in
-- select_event_coins, and may change while the event does not.
-- Parameters: $labels, the file of the names in events. Run twice: changes nothing.
UPDATE event_coins SET symbol = s.symbol, name = s.name
FROM (
    SELECT
        l.coin,
        coalesce(c.symbol, n.symbol) AS symbol,
        coalesce(c.name, n.name) AS name
    FROM (SELECT DISTINCT coin FROM event_coins) AS l
    LEFT JOIN coins AS c ON c.slug = l.coin
    LEFT JOIN read_parquet($labels, hive_partitioning = false) AS n ON n.slug = l.coin
) AS s
WHERE event_coins.coin = s.coin
    -- Bytes: the column compares without regard to case, and eth may become ETH.
    AND (encode(event_coins.symbol) IS DISTINCT FROM encode(s.symbol) OR event_coins.name IS DISTINCT FROM s.name)

-- name: update_category_ids
-- Grain: one row per event and category whose id changed: it follows from the name, as in
-- select_event_categories, and may change while the event does not.
-- Parameters: none. Run twice: changes nothing.
UPDATE event_categories SET category_id = s.category_id
FROM (
    SELECT l.category, c.category_id
    FROM (SELECT DISTINCT category FROM event_categories) AS l
    LEFT JOIN (
        SELECT lower(name) AS folded, min(id) AS category_id FROM categories GROUP BY lower(name)
    ) AS c ON c.folded = lower(l.category)
) AS s
WHERE event_categories.category = s.category
    AND event_categories.category_id IS DISTINCT FROM s.category_id
