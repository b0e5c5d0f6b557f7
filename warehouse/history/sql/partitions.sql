-- Partitions of Parquet files, from the published file. Each statement only reads it.
--
--     list_day_contents, list_month_contents → write_day, write_month

-- name: list_day_contents
-- The observed days, each with its content. Grain: day.
SELECT day::VARCHAR, content FROM state.days ORDER BY day;

-- name: list_month_contents
-- The months of events, each with its content; one for events without a date. Grain: month.
-- Placeholders: columns.
SELECT
    coalesce(strftime(date, '%Y-%m'), '__HIVE_DEFAULT_PARTITION__') AS month,
    count(*) || '-' || sum(hash({columns}))
FROM events
GROUP BY month
ORDER BY month;

-- name: write_day
-- The versions that became known on a day. Grain: event, version.
-- Without the end of a version, which only later versions tell.
COPY (
    SELECT * EXCLUDE (known_to) REPLACE (extra::VARCHAR AS extra)
    FROM event_versions
    WHERE known_from >= $key::TIMESTAMPTZ AND known_from < $key::TIMESTAMPTZ + INTERVAL 24 HOURS
) TO $file (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1);

-- name: write_month
-- The events of a month, as now known. Grain: event.
-- Unknown fields are JSON text: engines differ on a JSON type.
COPY (
    SELECT
        * EXCLUDE (last_seen_at, missing_since, content_at)
        REPLACE (extra::VARCHAR AS extra)
    FROM events
    WHERE (
            date >= try_cast($key || '-01' AS TIMESTAMPTZ)
            AND date < try_cast($key || '-01' AS TIMESTAMPTZ) + INTERVAL 1 MONTH
        )
        OR ($key = '__HIVE_DEFAULT_PARTITION__' AND date IS NULL)
) TO $file (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1);
