-- The rows of a query, another statement of this folder, as a Parquet file of a checkpoint, which only DuckDB reads:
-- version 2 is written faster.
COPY ({query}) TO $file (FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2);
