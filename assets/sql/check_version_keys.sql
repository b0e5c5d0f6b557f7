-- Grain: one row, how many (event_id, version) are there more than once. Run twice: the same row.
SELECT count(*)
FROM (SELECT 1 FROM event_versions GROUP BY event_id, version HAVING count(*) > 1)
