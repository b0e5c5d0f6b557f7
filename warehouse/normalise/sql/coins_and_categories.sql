-- Rows of the lists of coins and of categories.
--
--     create_… → insert_… → count_…

-- name: create_coins
-- Grain: one row per readable row of a list of coins.
-- Run twice: empty again.
CREATE OR REPLACE TEMP TABLE seen_coins (
    position BIGINT,
    slug VARCHAR,
    symbol VARCHAR,
    name VARCHAR,
    rank INTEGER,
    tracked BOOLEAN,
    icon_url VARCHAR,
    upcoming_count INTEGER,
    major_count INTEGER,
    peak_impact DOUBLE,
    extra VARCHAR
)

-- name: insert_coins
-- Grain: one row per element of $rows, a JSON array as rows.py makes it.
-- Run twice: every row is there twice.
INSERT INTO seen_coins BY NAME
SELECT parsed.*
FROM (
    SELECT from_json(element, '{
        "position": "BIGINT",
        "slug": "VARCHAR",
        "symbol": "VARCHAR",
        "name": "VARCHAR",
        "rank": "INTEGER",
        "tracked": "BOOLEAN",
        "icon_url": "VARCHAR",
        "upcoming_count": "INTEGER",
        "major_count": "INTEGER",
        "peak_impact": "DOUBLE",
        "extra": "VARCHAR"
    }') AS parsed
    FROM (SELECT unnest(from_json($rows, '["JSON"]')) AS element)
)

-- name: count_coins
-- Grain: one row: coins read, and the slugs among them. Reads only.
SELECT count(*), count(DISTINCT slug) FROM seen_coins

-- name: create_categories
-- Grain: one row per readable row of the list of categories.
-- Run twice: empty again.
CREATE OR REPLACE TEMP TABLE seen_categories (
    position BIGINT,
    id VARCHAR,
    name VARCHAR,
    extra VARCHAR
)

-- name: insert_categories
-- Grain: one row per element of $rows, a JSON array as rows.py makes it.
-- Run twice: every row is there twice.
INSERT INTO seen_categories BY NAME
SELECT parsed.*
FROM (
    SELECT from_json(element, '{
        "position": "BIGINT", "id": "VARCHAR", "name": "VARCHAR", "extra": "VARCHAR"
    }') AS parsed
    FROM (SELECT unnest(from_json($rows, '["JSON"]')) AS element)
)

-- name: count_categories
-- Grain: one row: categories read, and the ids among them. Reads only.
SELECT count(*), count(DISTINCT id) FROM seen_categories
