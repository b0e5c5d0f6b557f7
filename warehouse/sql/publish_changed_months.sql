-- Grain: one row per event month in which an event differs from what was published, but for what
-- only looks touch.
-- Parameters: none. Run twice: the same rows.
WITH gone AS (SELECT * EXCLUDE (last_seen_at, missing_since, content_at) FROM gone_events),
new AS (SELECT * EXCLUDE (last_seen_at, missing_since, content_at) FROM new_events)
SELECT DISTINCT coalesce(strftime(date, '%Y-%m'), '__HIVE_DEFAULT_PARTITION__') AS event_month
FROM (
    (SELECT * FROM gone EXCEPT SELECT * FROM new)
    UNION ALL
    (SELECT * FROM new EXCEPT SELECT * FROM gone)
)
