-- Grain: one row: records, ids among them, different ids, records that came before. Reads only.
SELECT count(*), count(event_id), count(DISTINCT event_id), count(*) FILTER (is_again)
FROM arrived
