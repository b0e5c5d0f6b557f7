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
    -- Small, or a file of some MB (compressed) is read by one thread. It bounds a record, too.
    buffer_size = 2097152
)
