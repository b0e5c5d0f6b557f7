-- Parquet files, from the published file. Each statement only reads it.
--
--     list_contents → write_event_changes, write_events

-- name: list_contents
-- The days on which versions became known, each with its content, and the events, which any publication may change.
-- Grain: file.
SELECT day::VARCHAR, content FROM state.days WHERE versions > 0
UNION ALL
SELECT 'events', value FROM _almanac.facts WHERE name = 'publication';

-- name: write_event_changes
-- The versions that became known on a day. Grain: event, version.
-- Without the end of a version, which only later versions tell, and without its place. Unknown fields are JSON text:
-- engines differ on a JSON type. Parameters: $day, $file.
COPY (
    SELECT * EXCLUDE (known_to, published_seq) REPLACE (extra::VARCHAR AS extra)
    FROM event_versions
    WHERE known_from >= $day::TIMESTAMPTZ AND known_from < $day::TIMESTAMPTZ + INTERVAL 1 DAY
) TO $file (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1);

-- name: write_events
-- The events as now known. Grain: event. Parameters: $file.
COPY (
    SELECT * EXCLUDE (last_seen_at, missing_since, content_at) REPLACE (extra::VARCHAR AS extra)
    FROM events
) TO $file (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1);
