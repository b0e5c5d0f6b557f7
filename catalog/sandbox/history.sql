-- The tables of a published warehouse that the store of a server reads, for a synthetic history.
-- They are in memory, in an attached database `published`.
--
--     make_… → insert_coins → insert_categories
--     (add_waiting_versions → insert_versions → keep_waiting_versions)*, insert_ranks*, insert_absences*

-- name: attach
-- Once.
ATTACH ':memory:' AS published

-- name: make_event_versions
-- Grain: one row per version of an event.
CREATE TABLE published.event_versions (
    event_id VARCHAR, version INTEGER, known_from TIMESTAMPTZ, known_to TIMESTAMPTZ, status VARCHAR,
    cancelled_at TIMESTAMPTZ, change_kinds VARCHAR[], changed_fields VARCHAR[], slug VARCHAR,
    title VARCHAR, description VARCHAR, displayed_date VARCHAR, date TIMESTAMPTZ,
    date_end TIMESTAMPTZ, date_type VARCHAR, is_estimated BOOLEAN, categories VARCHAR[],
    coins VARCHAR[], impact DOUBLE, impact_band VARCHAR, impact_summary VARCHAR,
    source_url VARCHAR, snapshot_url VARCHAR, last_verified_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ, updated_at TIMESTAMPTZ, unknown_fields VARCHAR[], published_seq BIGINT
)

-- name: make_index
-- Finds the versions of an event without a scan.
CREATE INDEX versions_by_event ON published.event_versions (event_id)

-- name: make_coins
-- Grain: one row per coin.
CREATE TABLE published.coins (slug VARCHAR, symbol VARCHAR, name VARCHAR, icon_url VARCHAR)

-- name: make_coin_snapshots
-- Grain: one row per coin and day that was requested.
CREATE TABLE published.coin_snapshots (
    coin VARCHAR, rank INTEGER, tracked BOOLEAN, observed_at TIMESTAMPTZ
)

-- name: make_internal
-- Once.
CREATE SCHEMA published._almanac

-- name: make_coin_absences
-- Grain: one row per coin and day that was requested on which the coin is not listed.
CREATE TABLE published._almanac.coin_absences (
    coin VARCHAR, missing_since TIMESTAMPTZ, missing_to TIMESTAMPTZ
)

-- name: make_event_coins
-- Grain: one row per event and coin. Empty: `coins` has every coin.
CREATE TABLE published.event_coins (event_id VARCHAR, coin VARCHAR, symbol VARCHAR, name VARCHAR)

-- name: make_categories
-- Grain: one row per category.
CREATE TABLE published.categories (id VARCHAR, name VARCHAR, first_seen_at TIMESTAMPTZ)

-- name: make_cancellations
-- Grain: one row per cancellation without a version. Empty: every one has its version.
CREATE TABLE published.cancellations (
    event_id VARCHAR, cancelled_at TIMESTAMPTZ, first_seen_at TIMESTAMPTZ
)

-- name: make_batches
-- Grain: one row per pull. Empty: nothing is pulled.
CREATE TABLE published.batches (feed VARCHAR, status VARCHAR, observed_at TIMESTAMPTZ)

-- name: make_waiting_versions
-- Grain: one row per version that becomes known after the months that are inserted.
CREATE TABLE published.waiting_versions AS
SELECT * EXCLUDE (unknown_fields, published_seq) FROM published.event_versions

-- name: add_waiting_versions
-- Once per span of months, in their order. Times of files are seconds since 1970.
INSERT INTO published.waiting_versions BY NAME
SELECT
    * REPLACE (
        to_timestamp(known_from) AS known_from, to_timestamp(known_to) AS known_to,
        to_timestamp(cancelled_at) AS cancelled_at, to_timestamp(date) AS date,
        to_timestamp(date_end) AS date_end, to_timestamp(last_verified_at) AS last_verified_at,
        to_timestamp(created_at) AS created_at, to_timestamp(updated_at) AS updated_at
    )
FROM read_json($file, format = 'newline_delimited', columns = {
    event_id: 'VARCHAR', version: 'INTEGER', known_from: 'BIGINT', known_to: 'BIGINT',
    status: 'VARCHAR', cancelled_at: 'BIGINT', change_kinds: 'VARCHAR[]',
    changed_fields: 'VARCHAR[]', slug: 'VARCHAR', title: 'VARCHAR', description: 'VARCHAR',
    displayed_date: 'VARCHAR', date: 'BIGINT', date_end: 'BIGINT', date_type: 'VARCHAR',
    is_estimated: 'BOOLEAN', categories: 'VARCHAR[]', coins: 'VARCHAR[]', impact: 'DOUBLE',
    impact_summary: 'VARCHAR', source_url: 'VARCHAR', snapshot_url: 'VARCHAR',
    last_verified_at: 'BIGINT', created_at: 'BIGINT', updated_at: 'BIGINT'
})

-- name: keep_versions
-- Waiting versions have no place in the feed.
COPY (
    FROM published.event_versions UNION ALL BY NAME FROM published.waiting_versions
) TO $file (FORMAT parquet)

-- name: insert_kept_versions
-- Those that are not inserted yet: places in the feed have no gap.
INSERT INTO published.event_versions
FROM read_parquet($file)
WHERE published_seq > (SELECT count(*) FROM published.event_versions)

-- name: replace_waiting_versions
-- After insert_kept_versions.
CREATE OR REPLACE TABLE published.waiting_versions AS
SELECT * EXCLUDE (unknown_fields, published_seq)
FROM read_parquet($file)
WHERE published_seq IS NULL

-- name: insert_versions
-- After add_waiting_versions.
INSERT INTO published.event_versions BY NAME
SELECT
    *,
    []::VARCHAR[] AS unknown_fields,
    (SELECT count(*) FROM published.event_versions)
        + row_number() OVER (ORDER BY known_from, event_id, version) AS published_seq
FROM published.waiting_versions
WHERE known_from < to_timestamp($until)
ORDER BY published_seq

-- name: keep_waiting_versions
-- After insert_versions. A DELETE would keep the memory.
CREATE OR REPLACE TABLE published.waiting_versions AS
FROM published.waiting_versions
WHERE known_from >= to_timestamp($until)

-- name: insert_coins
-- Once.
INSERT INTO published.coins BY NAME
SELECT *
FROM read_json($file, columns = {
    slug: 'VARCHAR', symbol: 'VARCHAR', name: 'VARCHAR', icon_url: 'VARCHAR'
})

-- name: insert_categories
-- Once.
INSERT INTO published.categories BY NAME
SELECT *, '2017-01-01 00:00:00+00'::TIMESTAMPTZ AS first_seen_at
FROM read_json($file, columns = {id: 'VARCHAR', name: 'VARCHAR'})

-- name: insert_ranks
-- Once per day.
INSERT INTO published.coin_snapshots BY NAME
SELECT *, to_timestamp($day * 86400) AS observed_at
FROM read_json($file, columns = {coin: 'VARCHAR', rank: 'INTEGER', tracked: 'BOOLEAN'})

-- name: insert_absences
-- Once per day, after insert_ranks.
INSERT INTO published._almanac.coin_absences
SELECT slug, to_timestamp($day * 86400), to_timestamp(($day + 1) * 86400)
FROM published.coins
WHERE slug NOT IN (
    SELECT coin FROM published.coin_snapshots WHERE observed_at = to_timestamp($day * 86400)
)
