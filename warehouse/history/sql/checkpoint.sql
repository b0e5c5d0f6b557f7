-- A checkpoint: writes the state of a fold after a day to files, and loads it into an empty state.
--
--     list_state_events, save_… → write_checkpoint_file         load_…
--
-- Aliases: c content in the state (`event_current`), s when and how an event was seen (`event_seen`).

-- name: list_state_events
-- The whole state of events, as a checkpoint stores it. Grain: event.
SELECT
    c.event_id,
    {each fields: @state.@name},
    c.status, c.cancelled_at, s.known, s.extra, c.first_seen_at, s.last_seen_at,
    s.missing_since, c.changed_at, s.content_at, s.shown_at, s.accepted_at, c.version, s.absent_at,
    s.absent_export_at, s.absent_export_content_at, s.content_md5, s.row_md5
FROM event_current AS c
JOIN event_seen AS s USING (event_id);

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
-- version 2 is written faster.
-- Placeholders: query.
COPY ({query}) TO $file (FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2);

-- name: load_current
-- Load the content of a checkpoint's events into an empty state. Grain: event.
INSERT INTO event_current BY NAME
SELECT
    event_id,
    {each compared: @name},
    status, cancelled_at, first_seen_at, changed_at, version
FROM read_parquet($file, hive_partitioning = false);

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
