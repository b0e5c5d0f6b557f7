-- Checks of the published file, which is attached as `warehouse`. Each only reads.

-- name: check_batches
-- How often each merged batch is there, and the sums of its rows. Grain: batch.
SELECT batch_id, count(*), any_value(arrived), any_value(good), any_value(rejected), any_value(ignored)
FROM batches
WHERE status = 'merged'
GROUP BY batch_id
ORDER BY batch_id;

-- name: compare_files
-- How many rows the Parquet files have, only they have, only the table has. Grain: one row.
-- Parameters: $files.
-- Placeholders: table, columns.
WITH
    files AS (SELECT {columns} FROM read_parquet($files, hive_partitioning = false)),
    published AS (SELECT {columns} FROM {table})
SELECT
    (SELECT count(*) FROM files),
    (SELECT count(*) FROM (FROM files EXCEPT ALL FROM published)),
    (SELECT count(*) FROM (FROM published EXCEPT ALL FROM files));

-- name: compare_rows
-- How many rows two warehouses have, only the first has, only the second has. Grain: one row.
-- Placeholders: table, columns.
WITH
    published_rows AS (SELECT {columns} FROM published.main.{table}),
    rebuilt_rows AS (SELECT {columns} FROM rebuilt.main.{table})
SELECT
    (SELECT count(*) FROM published_rows),
    (SELECT count(*) FROM (FROM published_rows EXCEPT ALL FROM rebuilt_rows)),
    (SELECT count(*) FROM (FROM rebuilt_rows EXCEPT ALL FROM published_rows));
