-- The records of an export as cells c0, c1, …; csv_reader.py begins with csv_rows of almanac.
--
--     first_list_cells | given_list_cells within find_separator → take_new_records (records.sql) | json_records → csv_events → insert_events

-- name: find_separator
-- Grain: at most one row: the separator that splits the most cells (categories, coins) into known
-- elements: $names, cells without a separator, and, among coins, texts in the form of a slug. Reads only.
-- Placeholders: list_cells, the SELECT of the cells.
-- Parameters: $names, $separators (each `mark` with the pattern of an `element`, and its `place`).
WITH list_cells AS ({list_cells}),
cells AS (
    SELECT
        'categories' AS field,
        unnest(almanac_list(categories, NULL::VARCHAR, NULL::VARCHAR, false)) AS cell
    FROM (SELECT DISTINCT categories FROM list_cells)
    UNION
    SELECT 'coins', unnest(almanac_list(coins, NULL::VARCHAR, NULL::VARCHAR, true))
    FROM (SELECT DISTINCT coins FROM list_cells)
),
known AS (
    SELECT 'categories' AS field, unnest($names::VARCHAR[]) AS name
    UNION
    SELECT field, cell FROM cells WHERE NOT regexp_matches(cell, '[;|,]')
),
separators AS (
    SELECT unnest(
        $separators::STRUCT(mark VARCHAR, element VARCHAR, place INTEGER)[], recursive := true
    )
),
parts AS (
    SELECT field, cell, mark, place, unnest(almanac_set(regexp_extract_all(cell, element))) AS name
    FROM cells
    JOIN separators ON contains(cell, mark)
    WHERE (field, cell) NOT IN (FROM known)
),
lists AS (
    SELECT mark, place
    FROM parts
    LEFT JOIN known USING (field, name)
    GROUP BY field, cell, mark, place
    HAVING count(*) > 1 AND bool_and(
        known.name IS NOT NULL
        OR field = 'coins' AND regexp_full_match(parts.name, '[^\s;|,\[\](){}"'']{1,200}')
    )
)
SELECT mark FROM lists GROUP BY mark, place ORDER BY count(*) DESC, place LIMIT 1

-- name: first_list_cells
-- Grain: one row per record of the first $first ones, with the cells of its lists. Reads only.
-- Placeholders: rows (csv_rows), categories, coins.
SELECT {categories} AS categories, {coins} AS coins FROM ({rows}) LIMIT $first::BIGINT

-- name: given_list_cells
-- Grain: one row per element of $cells, pairs of the cells of lists. Reads only.
SELECT cell[1] AS categories, cell[2] AS coins FROM (SELECT unnest($cells::VARCHAR[][]) AS cell)

-- name: json_records
-- Grain: one row per element of $rows, a JSON array of arrays: the place of a record and its cells.
-- Reads only.
-- Placeholders: cells.
SELECT record[1]::BIGINT AS place, NULL::UBIGINT AS digest, {cells}
FROM (SELECT unnest(from_json($rows, '[["VARCHAR"]]')) AS record)

-- name: csv_events
-- Grain: one row per record, the texts of which `insert_events` makes an event. Reads only.
-- Placeholders: records; cells, those of the columns of events, NULL where the plan or the file has
-- none; extra, the other cells as JSON. Parameters: $reading, $separator, $element, $shown.
SELECT
    place,
    if(digest IS NULL, NULL, hash(digest, $reading::VARCHAR)) AS row_hash,
    almanac_clean(event_id) AS event_id,
    NULL::VARCHAR AS observed_text,
    NULL::VARCHAR AS content_text,
    NULL::VARCHAR AS cancelled_text,
    {each fields except categories, coins: almanac_clean(@name) AS @name},
    CASE WHEN $shown & $categories_bit <> 0
        THEN almanac_list(categories, $separator::VARCHAR, $element::VARCHAR, false)
    END AS categories,
    CASE WHEN $shown & $coins_bit <> 0
        THEN almanac_list(coins, $separator::VARCHAR, $element::VARCHAR, true)
    END AS coins,
    $shown::BIGINT AS shown,
    extra,
    NULL::STRUCT(slug VARCHAR, symbol VARCHAR, name VARCHAR)[] AS coin_names,
    'scheduled' AS status
FROM (SELECT place, digest, {cells}, {extra} AS extra FROM ({records}))
