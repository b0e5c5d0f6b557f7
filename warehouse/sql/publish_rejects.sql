-- Grain: one row per row that could not be read. A file whose batch never took effect is left out.
-- Parameters: $rejects, the files of the batches. Run twice: the same rows.
SELECT observed_date, batch_id, position, reason, raw
FROM read_parquet($rejects, hive_partitioning = true, hive_types = {'observed_date': DATE})
WHERE batch_id IN (SELECT batch_id FROM batches)
