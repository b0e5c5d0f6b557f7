-- A checkpoint: writes the state of a fold after a day to files, and loads it into an empty state.
--
--     count_state → (if much changed: save_content → note_saved) → save_content_changes, save_… → write_checkpoint_file
--     load_… → find_content_file → view_content → count_state
--
-- Content is wide and seldom changes. The content file is kept from checkpoint to checkpoint, and
-- each checkpoint writes only the content that differs from it.

-- name: count_state
-- Numbers of rows in the tables of the state, in the order of `_TABLES` in day.py. Grain: one row.
SELECT
    (SELECT count(*) FROM event_seen),
    (SELECT count(*) FROM coins_state),
    (SELECT count(*) FROM categories_state),
    (SELECT count(*) FROM cancellations_waiting),
    (SELECT count(*) FROM coin_labels);

-- name: save_seen
-- When and how each event was seen. Grain: event.
SELECT * FROM event_seen;

-- name: count_content_changes
-- How many events have content that is not in the content file. Grain: one row.
SELECT count(*) FROM event_content WHERE NOT is_saved;

-- name: save_content
-- The content of all events. Grain: event.
SELECT
    event_id,
    {each compared: @name},
    status, cancelled_at, first_seen_at, changed_at, version
FROM event_current;

-- name: note_saved
-- Record that the content file has all content. Run twice: the same.
UPDATE event_content SET is_saved = true;

-- name: save_content_changes
-- The content that is not in the content file. Grain: event.
SELECT * EXCLUDE (is_saved) FROM event_content WHERE NOT is_saved;

-- name: save_cancellations_waiting
-- The rows a checkpoint keeps, in a fixed order. Grain: event_id.
SELECT * FROM cancellations_waiting ORDER BY event_id;

-- name: save_coin_labels
-- The rows a checkpoint keeps, in a fixed order. Grain: slug.
SELECT * FROM coin_labels ORDER BY slug;

-- name: save_coins_state
-- The rows a checkpoint keeps, in a fixed order. Grain: slug.
SELECT * FROM coins_state ORDER BY slug;

-- name: save_categories_state
-- The rows a checkpoint keeps, in a fixed order. Grain: id.
SELECT * FROM categories_state ORDER BY id;

-- name: write_checkpoint_file
-- The rows of a query, another statement of this folder, as a Parquet file of a checkpoint, which only DuckDB reads:
-- version 2 and level 1 are written faster.
-- Placeholders: query.
COPY ({query}) TO $file (
    FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, PARQUET_VERSION v2
);

-- name: find_content_file
-- Name the content file for view_content.
SET VARIABLE content_file = $file;

-- name: view_content
-- The content of all events: in memory what differs from the content file or was loaded, the rest in
-- the file. A statement reads the columns that it uses. Grain: event.
CREATE OR REPLACE VIEW event_current AS
SELECT * EXCLUDE (is_saved) FROM event_content
UNION ALL
SELECT
    f.event_id,
    {each compared: f.@name},
    f.status, f.cancelled_at, f.first_seen_at, f.changed_at, f.version
FROM read_parquet(getvariable('content_file'), hive_partitioning = false) AS f
ANTI JOIN event_content AS c ON c.event_id = f.event_id;

-- name: load_content_changes
-- Load the content that the content file lacks into an empty state. Grain: event.
INSERT INTO event_content BY NAME
SELECT *, false AS is_saved FROM read_parquet($file, hive_partitioning = false);

-- name: load_seen
-- Load when a checkpoint's events were seen into an empty state. Grain: event.
INSERT INTO event_seen BY NAME
SELECT
    event_id, known, {each uncompared: @name}, extra, content_at, shown_at,
    accepted_at, last_seen_at, missing_since, absent_at, absent_export_at, absent_export_content_at,
    content_md5, row_md5
FROM read_parquet($file, hive_partitioning = false);

-- name: load_cancellations_waiting
-- The rows of a checkpoint into an empty state. Grain: as the table.
INSERT INTO cancellations_waiting BY NAME SELECT * FROM read_parquet($file, hive_partitioning = false);

-- name: load_coin_labels
-- The rows of a checkpoint into an empty state. Grain: as the table.
INSERT INTO coin_labels BY NAME SELECT * FROM read_parquet($file, hive_partitioning = false);

-- name: load_coins_state
-- The rows of a checkpoint into an empty state. Grain: as the table.
INSERT INTO coins_state BY NAME SELECT * FROM read_parquet($file, hive_partitioning = false);

-- name: load_categories_state
-- The rows of a checkpoint into an empty state. Grain: as the table.
INSERT INTO categories_state BY NAME SELECT * FROM read_parquet($file, hive_partitioning = false);
