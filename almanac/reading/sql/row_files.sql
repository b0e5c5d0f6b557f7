-- The rows of a query as a file, in the forms that `almanac sql --output` writes.

-- name: copy_csv
-- Grain: as the relation `answer`, as CSV with a header.
-- Parameters: $file. Run twice: the same file.
-- No other file may be written, also not one beside it.
COPY (FROM answer) TO $file (FORMAT csv, HEADER, USE_TMP_FILE false)

-- name: copy_tsv
-- Grain: as the relation `answer`, whose texts are escaped, as lines of fields with a header.
-- Parameters: $file. Run twice: the same file.
-- No field is quoted. No other file may be written, also not one beside it.
COPY (FROM answer) TO $file
(FORMAT csv, DELIMITER '	', QUOTE '', ESCAPE '', NULLSTR '\N', HEADER, USE_TMP_FILE false)

-- name: copy_json
-- Grain: as the relation `answer`, as an array of JSON objects.
-- Parameters: $file. Run twice: the same file.
-- No other file may be written, also not one beside it.
COPY (FROM answer) TO $file (FORMAT json, ARRAY true, USE_TMP_FILE false)

-- name: copy_parquet
-- Grain: as the relation `answer`, as Parquet.
-- Parameters: $file. Run twice: the same file.
-- No other file may be written, also not one beside it.
COPY (FROM answer) TO $file (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)
