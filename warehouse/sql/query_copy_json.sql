-- Grain: as the relation `asked`, as an array of JSON objects.
-- Parameters: $file. Run twice: the same file.
COPY (FROM asked) TO $file (FORMAT json, ARRAY true)
