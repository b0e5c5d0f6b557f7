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
    strict_mode = true
)
