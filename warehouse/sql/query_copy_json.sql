-- Grain: as the relation `asked`, as an array of JSON objects.
-- Parameters: $file. Run twice: the same file.
-- No other file may be written, also not one beside it.
COPY (FROM asked) TO $file (FORMAT json, ARRAY true, USE_TMP_FILE false)
