-- A page of events with the total of all pages. Grain: one row an event, by date and id.
-- Parameters: $begun (days before $lower, of the longest event), $lower, $upper, $limit,
-- $names (to have one of).
-- Reads only.
WITH span AS (
    SELECT id, date FROM events
    WHERE date BETWEEN $begun AND $upper AND (date >= $lower OR dateEnd >= $lower) AND list_has_any(coins, $names)
)
SELECT events.*, (SELECT count(*) FROM span) AS total
FROM events
WHERE date BETWEEN $begun AND $upper AND (date >= $lower OR dateEnd >= $lower) AND list_has_any(coins, $names)
ORDER BY date, id
LIMIT $limit
