-- The rejected rows of a batch as a file. Grain: row of the batch.
COPY (SELECT * FROM rejected ORDER BY position) TO $file (FORMAT parquet, COMPRESSION zstd);
