-- The current events in the lake by event month, for engines that read Parquet.
--
--     find_changed_months → create_lake_events → list_months → write_month
--
-- A full build sorts the table of events by date, so a scan for a month skips most of the others.

-- name: find_changed_months
-- Grain: one row per event month in which an event differs from the published one. Columns that
-- every observation changes are not compared.
-- Parameters: none. Run twice: the same rows.
SELECT DISTINCT coalesce(strftime(date, '%Y-%m'), '__HIVE_DEFAULT_PARTITION__') AS event_month
FROM (
    SELECT date FROM gone_events
    UNION ALL
    SELECT date FROM new_events
)

-- name: create_lake_events
-- Grain: one row per event, as the lake has it, where every connection to the staged file sees it.
-- Unknown fields are JSON text, as in the other files of the lake: engines differ on a JSON type.
-- Parameters: none. Run twice: made again.
CREATE OR REPLACE VIEW memory.main.lake_events AS
SELECT * EXCLUDE (last_seen_at, missing_since, content_at) REPLACE (extra::VARCHAR AS extra)
FROM staged.main.events

-- name: list_months
-- Grain: one row per month that has an event; one for events without a date.
-- Parameters: none. Run twice: the same rows.
-- Instants are made distinct first: many events share one, and finding its month takes longer.
SELECT DISTINCT coalesce(strftime(date, '%Y-%m'), '__HIVE_DEFAULT_PARTITION__')
FROM (SELECT DISTINCT date FROM events)

-- name: write_month
-- Grain: one row per event of a month, in the order of the table; from create_lake_events.
-- Parameters: $month; $file, where to. Run twice: the same file.
COPY (
    SELECT *
    FROM memory.main.lake_events
    WHERE (
            date >= try_cast($month || '-01' AS TIMESTAMPTZ)
            AND date < try_cast($month || '-01' AS TIMESTAMPTZ) + INTERVAL 1 MONTH
        )
        OR ($month = '__HIVE_DEFAULT_PARTITION__' AND date IS NULL)
) TO $file (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)
