-- The versions of a day as its file, which also says what was folded into it. Grain: event, version.
COPY (FROM log UNION ALL FROM claims)
TO $file (FORMAT parquet, COMPRESSION zstd, KV_METADATA {almanac: $meta});
