-- Grain: one row per set of known fields among versions and events, with the names of the others.
-- Parameters: $files, where they are; $names, the fields in the order of their bits.
-- Run twice: made again.
CREATE OR REPLACE TEMP TABLE unknown_fields AS
SELECT
    known,
    list_filter($names, lambda name, place: (known & (1::BIGINT << (place - 1))) = 0)
        AS unknown_fields
FROM (SELECT DISTINCT known FROM read_parquet($files, union_by_name = true, hive_partitioning = false))
