-- Grain: one row, of the newest day with batches: rows that arrived, and those rejected.
-- Run twice: the same row.
SELECT max(observed_date), coalesce(sum(arrived), 0), coalesce(sum(rejected), 0)
FROM batches
WHERE observed_date = (SELECT max(observed_date) FROM batches)
