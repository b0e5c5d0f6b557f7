-- An export read by DuckDB's own reader: parts of one SELECT that csv_reader.py puts together.
--
--     csv_file → find_doubtful_lists → keep_list_cells → list_cells

-- name: csv_file
-- Grain: one row per record of a CSV file but its header, all cells as text, in the order of the file. The end of
-- a SELECT that csv_reader.py begins. Reads only.
-- Parameters: $path, $compression, $columns (a name of ours for each column).
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

-- name: find_doubtful_lists
-- Grain: one row: whether the lists of a column were split, and whether their elements contain a
-- separator outside brackets, or begin a JSON array. Reads only.
SELECT
    coalesce(bool_or(len(categories) > 1), false) AS categories_split,
    coalesce(bool_or(almanac_is_doubtful(categories)), false) AS categories_doubtful,
    coalesce(bool_or(len(coins) > 1), false) AS coins_split,
    coalesce(bool_or(almanac_is_doubtful(coins)), false) AS coins_doubtful
FROM normalised

-- name: keep_list_cells
-- Grain: one row per different combination of the cells of columns with lists, and how often it
-- occurs; a cell that is longer than $chars is NULL. csv_reader.py replaces the braces.
-- Placeholders: cells, file.
-- Parameters: as csv_file, and $chars. Run twice: the same.
CREATE OR REPLACE TEMP TABLE list_cells AS
SELECT {cells}, count(*) AS times
{file}
GROUP BY ALL

-- name: list_cells
-- Grain: one row per different cell of a column, the most frequent first. csv_reader.py replaces the
-- braces. Reads only.
-- Placeholders: cell.
-- Parameters: $most.
SELECT {cell}
FROM list_cells
WHERE {cell} IS NOT NULL
GROUP BY {cell}
ORDER BY sum(times) DESC, {cell}
LIMIT $most
