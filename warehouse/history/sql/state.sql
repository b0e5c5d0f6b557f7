-- What the next merge needs and readers do not: the schema `state` of warehouse.duckdb, and the macros
-- that the steps share.
--
--     create_state      once for each file, after the tables of `main`
--     define_macros     once for each connection
--     read_facts → (batches are folded) → note_fact

-- name: create_state
-- Internal tables of the fold. Grain: one row per event, ended version, cancellation, coin, batch, day
-- or fact.
-- `current_versions` has the current version of each event, and what every observation of it may
-- change. The view `events` shows it; the view `event_versions` shows it with `ended_versions`, to
-- which a change moves its row. A column that a version keeps while observations change it is there
-- twice: as last seen, and as `version_…`. `shown_at` is the content time of the last row of the
-- event, and `accepted_at` when that was observed; `content_at` is later if an absence proved a
-- withdrawal since. Of a missing event, `absent_at` is the newest content time of its absences;
-- `absent_export_at` and `absent_export_content_at` are those of the first export that counts for a
-- withdrawal. `doubted_at` is the content time of an export that lacked the event with too many others. `known` are the fields that were ever shown. `row_hash` is the digest of the record of an
-- export.
-- `coin_labels` are the names of coins in events. `batch_records` has each batch's account as JSON.
-- `days` has the versions of each observed day, and a hash of them. `removed_versions` are those that
-- were published, and that a refold removed.
CREATE SCHEMA state;
CREATE TABLE state.current_versions (
    event_id VARCHAR,
    {each content: @name @type},
    {each dating: @name @type},
    extra JSON, first_seen_at TIMESTAMPTZ, version INTEGER, known_from TIMESTAMPTZ,
    change_kinds VARCHAR[], changed_fields VARCHAR[], batch_id VARCHAR, feed VARCHAR, plan VARCHAR,
    {each uncompared: version_@name @type},
    version_unknown_fields VARCHAR[], version_extra JSON, version_content_at TIMESTAMPTZ,
    published_seq BIGINT, known BIGINT, content_at TIMESTAMPTZ, shown_at TIMESTAMPTZ,
    accepted_at TIMESTAMPTZ, last_seen_at TIMESTAMPTZ, missing_since TIMESTAMPTZ,
    absent_at TIMESTAMPTZ, absent_export_at TIMESTAMPTZ, absent_export_content_at TIMESTAMPTZ,
    doubted_at TIMESTAMPTZ,
    content_hash UBIGINT, row_hash UBIGINT
);
CREATE TABLE state.ended_versions (
    event_id VARCHAR,
    {each content: @name @type},
    {each dating: @name @type},
    unknown_fields VARCHAR[], extra JSON, first_seen_at TIMESTAMPTZ, version INTEGER,
    known_from TIMESTAMPTZ, known_to TIMESTAMPTZ, known_basis VARCHAR, change_kinds VARCHAR[],
    changed_fields VARCHAR[], batch_id VARCHAR, feed VARCHAR, plan VARCHAR, content_at TIMESTAMPTZ,
    published_seq BIGINT
);
CREATE TABLE state.cancellations_waiting (
    event_id VARCHAR, cancelled_at TIMESTAMPTZ, content_at TIMESTAMPTZ,
    first_seen_at TIMESTAMPTZ, last_seen_at TIMESTAMPTZ, batch_id VARCHAR
);
CREATE TABLE state.coin_labels (
    slug VARCHAR, symbol VARCHAR, name VARCHAR, content_at TIMESTAMPTZ
);
CREATE TABLE state.watched_spans (
    coins VARCHAR[], categories VARCHAR[], lower TIMESTAMPTZ, upper TIMESTAMPTZ,
    since TIMESTAMPTZ
);
CREATE TABLE state.batch_records (batch_id VARCHAR, released BOOLEAN, record JSON);
CREATE TABLE state.days (day DATE, versions BIGINT, content VARCHAR);
CREATE TABLE state.removed_versions (
    event_id VARCHAR, known_from TIMESTAMPTZ, published_seq BIGINT
);
CREATE TABLE state.facts (name VARCHAR, value VARCHAR);

-- name: define_macros
-- The versions of the file, with few columns: planning the view of all takes longer. Whether a bitmask has the bit of a field; and an instant from the service if it can be believed: one
-- more than a day after the observation is unknown, else a single wrong year would be newer than all
-- later content.
CREATE OR REPLACE TEMP VIEW versions AS
SELECT event_id, version, known_from, NULL::TIMESTAMPTZ AS known_to, batch_id, published_seq
FROM state.current_versions
UNION ALL
SELECT event_id, version, known_from, known_to, batch_id, published_seq FROM state.ended_versions;
CREATE OR REPLACE TEMP MACRO has(fields, field_bit) AS fields & field_bit <> 0;
CREATE OR REPLACE TEMP MACRO believed(instant, observed_at) AS
    if(instant <= observed_at + INTERVAL 1 DAY, instant, NULL);

-- name: read_facts
-- The facts of a file. Grain: one row per fact.
SELECT name, value FROM state.facts;

-- name: note_fact
-- Add a fact, or replace the one of that name. Run twice: the same.
MERGE INTO state.facts AS f
USING (SELECT $name::VARCHAR AS name, $value::VARCHAR AS value) AS n
ON f.name = n.name
WHEN MATCHED THEN UPDATE SET value = n.value
WHEN NOT MATCHED THEN INSERT (name, value) VALUES (n.name, n.value);

-- name: read_publication
-- The id of the publication, and when it was written. Grain: one row per fact.
SELECT name, value FROM _almanac.facts;

-- name: list_tables
-- The tables of the file. Grain: table.
SELECT schema_name, table_name
FROM duckdb_tables()
WHERE database_name = 'warehouse' AND NOT internal;

-- name: list_views_and_macros
-- The views and macros of the file, to remove them. Grain: one row for each.
SELECT 'VIEW', schema_name, view_name
FROM duckdb_views()
WHERE database_name = 'warehouse' AND NOT internal
UNION ALL
SELECT DISTINCT
    if(function_type = 'table_macro', 'MACRO TABLE', 'MACRO'), schema_name, function_name
FROM duckdb_functions()
WHERE database_name = 'warehouse' AND function_type IN ('macro', 'table_macro') AND NOT internal;
