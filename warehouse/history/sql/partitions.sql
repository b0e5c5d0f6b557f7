-- Partitions of Parquet files, from the published file. Each statement only reads it.
--
--     list_days_as_text, list_months → write_event_changes, write_events

-- name: list_days_as_text
-- The days on which versions became known, each with its content. Grain: day.
SELECT day::VARCHAR, content FROM state.days WHERE versions > 0 ORDER BY day;

-- name: list_months
-- The months of events, each with its content; one for events without a date. Grain: month.
-- Placeholders: columns.
SELECT
    coalesce(strftime(date, '%Y'), '__HIVE_DEFAULT_PARTITION__') AS month,
    count(*) || '-' || sum(hash({columns}))
FROM events
GROUP BY month
ORDER BY month;

-- name: write_event_changes
-- The versions that became known on some days, a folder for each. Grain: event, version.
-- Without the end of a version, which only later versions tell, and without its place. Unknown fields are JSON text:
-- engines differ on a JSON type. Parameters: $keys, the days; $folder.
COPY (
    SELECT
        * EXCLUDE (known_to, published_seq) REPLACE (extra::VARCHAR AS extra),
        known_from::DATE::VARCHAR AS observed_date
    FROM event_versions
    WHERE known_from::DATE IN (SELECT unnest($keys::DATE[]))
) TO $folder (
    FORMAT parquet, PARTITION_BY (observed_date), COMPRESSION zstd, COMPRESSION_LEVEL 1
);

-- name: write_events
-- The events of some months, as now known, a folder for each. Grain: event.
-- Parameters: $keys, the months; $folder.
COPY (
    SELECT *
    FROM (
        SELECT
            * EXCLUDE (last_seen_at, missing_since, content_at)
            REPLACE (extra::VARCHAR AS extra),
            coalesce(strftime(date, '%Y'), '__HIVE_DEFAULT_PARTITION__') AS event_year
        FROM events
    )
    WHERE event_year IN (SELECT unnest($keys::VARCHAR[]))
) TO $folder (
    FORMAT parquet, PARTITION_BY (event_year), COMPRESSION zstd, COMPRESSION_LEVEL 1
);
