-- The records of an export as cells c0, c1, …; csv_reader.py begins with csv_rows of almanac.
--
--     find_separator → csv_rows | take_new_records | json_records → insert_events

-- name: find_separator
-- Grain: at most one row: the separator that splits the most cells of the relation `list_cells`
-- (categories, coins) into known elements: $names, cells without a separator, and, among coins, texts
-- in the form of a slug. Reads only.
-- Parameters: $names, $separators (each `mark` with the pattern of an `element`, and its `place`).
WITH cells AS (
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

-- name: take_new_records
-- Grain: one row per record that is not unchanged, with its place in the file. Records with the same
-- digest are the same, so any of them may have any of their places. Reads only.
-- Placeholders: records.
SELECT * EXCLUDE (copy)
FROM (
    SELECT *, row_number() OVER (PARTITION BY digest) AS copy
    FROM ({records})
    WHERE digest IN (SELECT digest FROM new_records)
)
JOIN new_records USING (digest, copy)

-- name: json_records
-- Grain: one row per element of $rows, a JSON array of arrays: the place of a record and its cells.
-- Reads only.
-- Placeholders: cells.
SELECT record[1]::BIGINT AS place, NULL::UBIGINT AS digest, {cells}
FROM (SELECT unnest(from_json($rows, '[["VARCHAR"]]')) AS record)
