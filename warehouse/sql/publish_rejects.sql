-- Grain: one row per row that could not be read. A file whose batch never took effect is left out.
-- Parameters: $rejects, the files of the batches. Run twice: the same rows.
-- The day is in the name of the folder; what the folders above are named says nothing.
SELECT regexp_extract(filename, 'observed_date=([0-9-]+)/[^/]+$', 1)::DATE AS observed_date,
    batch_id, position, reason, raw
FROM read_parquet($rejects, hive_partitioning = false, filename = true)
WHERE batch_id IN (SELECT batch_id FROM batches)
