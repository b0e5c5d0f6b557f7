-- Grain: one row, how many events do not have exactly one current version, equal to their own.
-- Run twice: the same row.
SELECT count(*)
FROM (
    SELECT e.event_id
    FROM events AS e
    LEFT JOIN event_versions AS v ON v.event_id = e.event_id AND v.known_to IS NULL
    GROUP BY e.event_id, e.version
    HAVING count(v.version) <> 1 OR max(v.version) IS DISTINCT FROM e.version
)
