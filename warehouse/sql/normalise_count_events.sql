-- Grain: one row: rows read, those that can't be, ids among the good ones. Reads only.
SELECT
    count(*),
    count(reason),
    count(DISTINCT event_id) FILTER (reason IS NULL)
FROM normalised
