-- The rows that a delta touches, and the updates of links to coins and categories.
--
--     find_unknown_fields → find_changed_batches
--     → find_touched | clear_touched (in full) → update_coin_names, update_category_ids

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

-- name: find_touched
-- Grain: one row per event whose state or versions differ from what was published.
-- Parameters: none. Run twice: made again.
CREATE OR REPLACE TEMP TABLE touched AS
SELECT event_id FROM gone_events
UNION
SELECT event_id FROM new_events
UNION
SELECT event_id FROM gone_event_versions
UNION
SELECT event_id FROM new_event_versions

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
