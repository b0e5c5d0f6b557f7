-- An export read by DuckDB's own reader: parts of one SELECT that csv_reader.py puts together.
--
--     csv_file → csv_rows → new_rows (unchanged.sql says which those are) → find_doubtful_lists
--     → list_cells → find_unread_places

-- name: csv_file
-- Grain: one row per record of a CSV file but its header, all columns as text, in the order of the
-- file. The end of a SELECT that csv_reader.py begins. Reads only.
-- Parameters: $path, $compression, $columns (a name of ours for each column of the header).
FROM read_csv(
    $path,
    columns = $columns,
    compression = $compression,
    header = true,
    delim = ',',
    quote = '"',
    escape = '"',
    auto_detect = false,
    strict_mode = true,
    -- With a larger buffer one thread reads a file of some MB. It also limits a record.
    buffer_size = 2097152
)

-- name: csv_rows
-- Grain: one row per record of a CSV file but its header, with the md5 of all its cells and of how
-- they are read. The end of a SELECT that csv_reader.py begins; it also gives the cells in place
-- of the braces. Reads only.
-- Parameters: as csv_file, and $reading.
-- Placeholders: cells, file.
FROM (
    SELECT *, md5(concat($reading, {cells})) AS row_md5
    {file}
)

-- name: new_rows
-- Grain: one row per record of a CSV file that is not unchanged. The end of a SELECT that
-- csv_reader.py begins. Reads only.
FROM arrived
WHERE NOT is_unchanged

-- name: find_doubtful_lists
-- Grain: one row: whether the lists of a column were split, and whether their elements contain a
-- separator outside brackets, or begin a JSON array. Reads only.
SELECT
    coalesce(bool_or(len(categories) > 1), false) AS categories_split,
    coalesce(bool_or(almanac_is_doubtful(categories)), false) AS categories_doubtful,
    coalesce(bool_or(len(coins) > 1), false) AS coins_split,
    coalesce(bool_or(almanac_is_doubtful(coins)), false) AS coins_doubtful
FROM normalised

-- name: list_cells
-- Grain: one row per different cell of a column, the most frequent first; none longer than $chars.
-- csv_reader.py replaces the braces. Reads only.
-- Placeholders: cell, rows.
-- Parameters: as csv_rows, and $chars, $most.
SELECT cell
FROM (SELECT {cell} AS cell {rows})
WHERE length(cell) <= $chars
GROUP BY cell
ORDER BY count(*) DESC, cell
LIMIT $most

-- name: find_unread_places
-- The positions of unreadable rows in the file: their table `arrived` has no order.
-- Identical rows get their positions one after the other.
-- csv_reader.py replaces the braces with the end of a SELECT.
-- Placeholders: rows.
-- Parameters: as csv_rows. Run twice: the same.
UPDATE normalised SET place = found.place
FROM (
    SELECT unread.unread_row, numbered.place
    FROM (
        SELECT
            rowid AS unread_row, row_md5,
            row_number() OVER (PARTITION BY row_md5 ORDER BY rowid) AS occurrence
        FROM normalised
        WHERE reason IS NOT NULL
    ) AS unread
    JOIN (
        SELECT row_md5, place, row_number() OVER (PARTITION BY row_md5 ORDER BY place) AS occurrence
        FROM (SELECT row_md5, row_number() OVER () - 1 AS place {rows})
        WHERE row_md5 IN (SELECT n.row_md5 FROM normalised AS n WHERE n.reason IS NOT NULL)
    ) AS numbered USING (row_md5, occurrence)
) AS found
WHERE normalised.rowid = found.unread_row
