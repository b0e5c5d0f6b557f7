-- Grain: one row per event month in which an event differs from what was published, but for what
-- only looks touch, by which events are not compared.
-- Parameters: none. Run twice: the same rows.
SELECT DISTINCT coalesce(strftime(date, '%Y-%m'), '__HIVE_DEFAULT_PARTITION__') AS event_month
FROM (
    SELECT date FROM gone_events
    UNION ALL
    SELECT date FROM new_events
)
