-- Grain: as the relation `asked`, as CSV with a header.
-- Parameters: $file. Run twice: the same file.
COPY (FROM asked) TO $file (FORMAT csv, HEADER)
