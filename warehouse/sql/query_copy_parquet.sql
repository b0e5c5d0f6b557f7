-- Grain: as the relation `asked`, as Parquet.
-- Parameters: $file. Run twice: the same file.
COPY (FROM asked) TO $file (FORMAT parquet, COMPRESSION zstd)
