-- The comparison of the published file with a rebuild.

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
