-- What a day's file says of itself. Grain: one row.
SELECT decode(value) FROM parquet_kv_metadata($file) WHERE decode(key) = 'almanac';
