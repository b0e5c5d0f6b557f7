-- Grain: as the relation `asked`, as CSV with a header.
-- Parameters: $file. Run twice: the same file.
-- No other file may be written, also not one beside it.
COPY (FROM asked) TO $file (FORMAT csv, HEADER, USE_TMP_FILE false)
