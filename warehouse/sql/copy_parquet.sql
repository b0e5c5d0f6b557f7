-- The rows of a query, another statement of this folder, as a Parquet file.
COPY ({query}) TO $file (FORMAT parquet, COMPRESSION zstd);
