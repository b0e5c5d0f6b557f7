-- Rows of the lists of coins and of categories.
--
--     create_… → insert_… → count_…

-- name: coin_row
-- The columns of a coin, as `from_json` takes them.
'{
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
}'

-- name: create_coins
-- Grain: one row per readable row of a list of coins.
-- Run twice: empty again.
CREATE OR REPLACE TEMP TABLE seen_coins AS SELECT unnest(from_json('{}', {coin_row})) LIMIT 0

-- name: insert_coins
-- Grain: one row per element of $rows, a JSON array as rows.py makes it.
-- Run twice: every row is there twice.
INSERT INTO seen_coins BY NAME
SELECT unnest(from_json(element, {coin_row}))
FROM (SELECT unnest(from_json($rows, '["JSON"]')) AS element)

-- name: count_coins
-- Grain: one row: coins read, and the slugs among them. Reads only.
SELECT count(*), count(DISTINCT slug) FROM seen_coins

-- name: category_row
-- The columns of a category, as `from_json` takes them.
'{"position": "BIGINT", "id": "VARCHAR", "name": "VARCHAR", "extra": "VARCHAR"}'

-- name: create_categories
-- Grain: one row per readable row of the list of categories.
-- Run twice: empty again.
CREATE OR REPLACE TEMP TABLE seen_categories AS
SELECT unnest(from_json('{}', {category_row})) LIMIT 0

-- name: insert_categories
-- Grain: one row per element of $rows, a JSON array as rows.py makes it.
-- Run twice: every row is there twice.
INSERT INTO seen_categories BY NAME
SELECT unnest(from_json(element, {category_row}))
FROM (SELECT unnest(from_json($rows, '["JSON"]')) AS element)

-- name: count_categories
-- Grain: one row: categories read, and the ids among them. Reads only.
SELECT count(*), count(DISTINCT id) FROM seen_categories
