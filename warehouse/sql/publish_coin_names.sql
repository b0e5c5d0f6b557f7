-- Grain: one row per event and coin whose names are not as they are now: they follow from the slug,
-- as in publish_event_coins, and may change while the event does not.
-- Parameters: $labels, the file of the names in events. Run twice: changes nothing.
UPDATE event_coins SET symbol = s.symbol, name = s.name
FROM (
    SELECT
        l.slug,
        coalesce(c.symbol, n.symbol) AS symbol,
        coalesce(c.name, n.name) AS name
    FROM (SELECT DISTINCT slug FROM event_coins) AS l
    LEFT JOIN coins AS c ON c.slug = l.slug
    LEFT JOIN read_parquet($labels, hive_partitioning = false) AS n ON n.slug = l.slug
) AS s
WHERE event_coins.slug = s.slug
    AND (event_coins.symbol IS DISTINCT FROM s.symbol OR event_coins.name IS DISTINCT FROM s.name)
