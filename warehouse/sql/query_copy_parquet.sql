-- Grain: as the relation `asked`, as Parquet.
-- Parameters: $file. Run twice: the same file.
-- No other file may be written, also not one beside it.
COPY (FROM asked) TO $file (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)
