-- name: create_state
CREATE SCHEMA state;
CREATE TABLE state.event_seen (
    event_id VARCHAR, known BIGINT,
    last_verified_at TIMESTAMPTZ, updated_at TIMESTAMPTZ,
    extra VARCHAR,
    content_at TIMESTAMPTZ, shown_at TIMESTAMPTZ, accepted_at TIMESTAMPTZ, last_seen_at TIMESTAMPTZ,
    missing_since TIMESTAMPTZ, absent_at TIMESTAMPTZ, absent_export_at TIMESTAMPTZ,
    absent_export_content_at TIMESTAMPTZ, content_md5 VARCHAR, row_md5 VARCHAR
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
CREATE OR REPLACE TEMP MACRO has(fields, field_bit) AS fields & field_bit <> 0;
CREATE OR REPLACE TEMP MACRO unknown_of(known) AS list_filter([
    if(has(known, 1), NULL, 'slug'),
    if(has(known, 2), NULL, 'title'),
    if(has(known, 4), NULL, 'description'),
    if(has(known, 8), NULL, 'displayed_date'),
    if(has(known, 16), NULL, 'date'),
    if(has(known, 32), NULL, 'date_end'),
    if(has(known, 64), NULL, 'date_type'),
    if(has(known, 128), NULL, 'is_estimated'),
    if(has(known, 256), NULL, 'categories'),
    if(has(known, 512), NULL, 'coins'),
    if(has(known, 1024), NULL, 'impact'),
    if(has(known, 2048), NULL, 'impact_band'),
    if(has(known, 4096), NULL, 'impact_summary'),
    if(has(known, 8192), NULL, 'source_url'),
    if(has(known, 16384), NULL, 'snapshot_url'),
    if(has(known, 32768), NULL, 'last_verified_at'),
    if(has(known, 65536), NULL, 'created_at'),
    if(has(known, 131072), NULL, 'updated_at')
], lambda name: name IS NOT NULL);
CREATE OR REPLACE TEMP MACRO believed(instant, observed_at) AS
    if(instant <= observed_at + INTERVAL 1 DAY, instant, NULL);
