-- Grain: one row per event that is not as it must be, three at most: its versions are numbered
-- without gap or repetition from 0 or 1 on, begin before they end, and one is current; the event
-- has the number of that one.
-- Parameters: $everything; else only the events in `touched`. Run twice: the same rows.
SELECT
    coalesce(e.event_id, v.event_id) AS event_id,
    e.rows AS events,
    e.version AS version,
    v.rows AS versions,
    v.first AS first_version,
    v.last AS last_version,
    v.current AS current_versions
FROM (
    SELECT event_id, count(*) AS rows, max(version) AS version
    FROM events
    WHERE $everything OR event_id IN (SELECT event_id FROM touched)
    GROUP BY event_id
) AS e
FULL JOIN (
    SELECT
        event_id,
        count(*) AS rows,
        min(version) AS first,
        max(version) AS last,
        count(*) FILTER (known_to IS NULL) AS current,
        count(*) FILTER (known_to < known_from) AS reversed
    FROM event_versions
    WHERE $everything OR event_id IN (SELECT event_id FROM touched)
    GROUP BY event_id
) AS v ON v.event_id = e.event_id
WHERE e.rows IS DISTINCT FROM 1
    OR e.version IS DISTINCT FROM v.last
    OR v.first NOT IN (0, 1)
    OR v.rows <> v.last - v.first + 1
    OR v.current <> 1
    OR v.reversed > 0
ORDER BY 1
LIMIT 3
