-- Grain: one row per event and coin. A coin's own names come before those it had in an event.
-- Parameters: $everything; else only the events in `touched`; $labels, the file of the names in
-- events. Run twice: the same rows.
SELECT
    l.event_id,
    l.slug,
    coalesce(c.symbol, n.symbol) AS symbol,
    coalesce(c.name, n.name) AS name
FROM (
    SELECT event_id, unnest(coins) AS slug
    FROM events
    WHERE $everything OR event_id IN (SELECT event_id FROM touched)
) AS l
LEFT JOIN coins AS c ON c.slug = l.slug
LEFT JOIN read_parquet($labels, hive_partitioning = false) AS n ON n.slug = l.slug
