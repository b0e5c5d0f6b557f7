-- Grain: one row, how many event_id are there more than once. Run twice: the same row.
SELECT count(*) FROM (SELECT 1 FROM events GROUP BY event_id HAVING count(*) > 1)
