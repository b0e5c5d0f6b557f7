-- How many rows two warehouses have, only the first has, only the second has. Grain: one row.
SELECT
    (SELECT count(*) FROM published.main.{table}),
    (SELECT count(*) FROM (
        FROM published.main.{table} EXCEPT ALL FROM replayed.main.{table}
    )),
    (SELECT count(*) FROM (
        FROM replayed.main.{table} EXCEPT ALL FROM published.main.{table}
    ));
