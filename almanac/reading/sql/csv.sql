-- A CSV file as rows of texts.

-- name: csv_rows
-- Grain: one row per record behind the header, in the order of the file, its cells c0, c1, … as
-- texts; an empty cell is NULL. A SELECT follows. Reads only.
-- Parameters: $path, $compression, $delimiter, $columns (the type of each cell by its name), $skip
-- (lines up to the header and with it). A record that can't be read is an error.
FROM read_csv(
    $path,
    columns = $columns,
    compression = $compression,
    delim = $delimiter,
    skip = $skip,
    header = false,
    quote = '"',
    escape = '"',
    auto_detect = false,
    strict_mode = true,
    -- With a larger buffer one thread reads a file of some MB.
    buffer_size = 2097152
)
