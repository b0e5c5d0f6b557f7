-- The versions of a day as its file, which also says what was folded into it. Grain: event, version.
COPY (SELECT * FROM log ORDER BY known_from, event_id, version)
TO $file (FORMAT parquet, COMPRESSION zstd, KV_METADATA {almanac: $meta});
