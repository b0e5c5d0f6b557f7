-- The coins of a day as a file. Grain: slug.
COPY (SELECT * FROM snapshot ORDER BY slug) TO $file (FORMAT parquet, COMPRESSION zstd);
