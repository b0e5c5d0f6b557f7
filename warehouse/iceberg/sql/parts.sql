-- The parts of the Iceberg tables, from the published file, which is attached and in use.
--
--     list_publication, list_days → list_… → write_…, for the parts that differ
--     list_base_bounds → write_base_event_versions, write_recent_event_versions

-- name: list_publication
-- Grain: one row, the publication of the file: its id and time.
-- Parameters: none. Run twice: the same row.
SELECT
    any_value(value) FILTER (name = 'publication'),
    any_value(value) FILTER (name = 'published_at')
FROM _almanac.facts

-- name: list_days
-- Grain: one row per day of the change log that has versions, oldest first.
-- Parameters: none. Run twice: the same rows.
SELECT day, sha256, versions FROM _almanac.published WHERE versions > 0 ORDER BY day

-- name: list_events
-- Grain: one row per month of events, `none` for those without a date, with a hash of its rows.
-- Parameters: none. Run twice: the same rows.
SELECT coalesce(strftime(e.date, '%Y-%m'), 'none') AS part, count(*), sum(hash(e))::VARCHAR
FROM events AS e
GROUP BY part
ORDER BY part

-- name: write_events
-- Grain: one row per event of a month.
-- Parameters: $part, its name; $file, where to. Run twice: the same file.
COPY (
    SELECT * REPLACE (extra::VARCHAR AS extra)
    FROM events
    WHERE coalesce(strftime(date, '%Y-%m'), 'none') = $part
    ORDER BY date, event_id
) TO $file (FORMAT parquet, COMPRESSION zstd)

-- name: list_coins
-- Grain: one row, the hash of all coins; no row without coins.
-- Parameters: none. Run twice: the same row.
SELECT 'all' AS part, count(*), sum(hash(c))::VARCHAR FROM coins AS c GROUP BY part

-- name: write_coins
-- Grain: one row per coin.
-- Parameters: $part, always `all`; $file, where to. Run twice: the same file.
COPY (SELECT * FROM coins WHERE $part = 'all' ORDER BY slug)
TO $file (FORMAT parquet, COMPRESSION zstd)

-- name: list_coin_snapshots
-- Grain: one row per month of snapshots, with a hash of its rows.
-- Parameters: none. Run twice: the same rows.
SELECT strftime(s.observed_date, '%Y-%m') AS part, count(*), sum(hash(s))::VARCHAR
FROM coin_snapshots AS s
GROUP BY part
ORDER BY part

-- name: write_coin_snapshots
-- Grain: one row per coin and day of a month.
-- Parameters: $part, its name; $file, where to. Run twice: the same file.
COPY (
    SELECT *
    FROM coin_snapshots
    WHERE strftime(observed_date, '%Y-%m') = $part
    ORDER BY observed_date, coin
) TO $file (FORMAT parquet, COMPRESSION zstd)

-- name: list_cancellations
-- Grain: one row, the hash of all cancellations; no row without any.
-- Parameters: none. Run twice: the same row.
SELECT 'all' AS part, count(*), sum(hash(c))::VARCHAR FROM cancellations AS c GROUP BY part

-- name: write_cancellations
-- Grain: one row per cancelled event.
-- Parameters: $part, always `all`; $file, where to. Run twice: the same file.
COPY (SELECT * FROM cancellations WHERE $part = 'all' ORDER BY event_id)
TO $file (FORMAT parquet, COMPRESSION zstd)

-- name: list_base_bounds
-- Grain: one row per base file of the versions before a time: the least event id in it.
-- Parameters: $cut, the time; $rows, the most versions in a file. Run twice: the same rows.
SELECT min(event_id)
FROM (
    SELECT event_id, (sum(count(*)) OVER (ORDER BY event_id) - count(*)) // $rows AS place
    FROM event_versions
    WHERE known_from < $cut
    GROUP BY event_id
)
GROUP BY place
ORDER BY ALL

-- name: write_base_event_versions
-- Grain: one row per version that became known before a time, of a range of event ids.
-- Parameters: $cut, the time; $low, the least id; $high, the id after the greatest, or NULL; $file,
-- where to. Groups of rows are small, so that the history of an event is few bytes.
-- Run twice: the same file.
COPY (
    SELECT * EXCLUDE (known_to, first_seen_at) REPLACE (extra::VARCHAR AS extra)
    FROM event_versions
    WHERE known_from < $cut AND event_id >= $low AND ($high IS NULL OR event_id < $high)
    ORDER BY event_id, version
) TO $file (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 10240)

-- name: write_recent_event_versions
-- Grain: one row per version that became known at or after a time.
-- Parameters: $cut, the time; $file, where to. Run twice: the same file.
COPY (
    SELECT * EXCLUDE (known_to, first_seen_at) REPLACE (extra::VARCHAR AS extra)
    FROM event_versions
    WHERE known_from >= $cut
    ORDER BY event_id, version
) TO $file (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 2048)

-- name: write_publications
-- Grain: one row per table, with its snapshot in this publication.
-- Parameters: $publication; $published_at; $tables and $snapshots, lists; $file, where to.
-- Run twice: the same file.
COPY (
    SELECT
        $publication AS publication,
        $published_at::TIMESTAMPTZ AS published_at,
        unnest($tables) AS table_name,
        unnest($snapshots)::BIGINT AS snapshot_id
) TO $file (FORMAT parquet, COMPRESSION zstd)

-- name: sum_event_versions
-- Grain: one row, the number of versions and the sum of their hashes, as in the table.
-- Parameters: none. Run twice: the same row.
SELECT count(*), coalesce(sum(hash(v)), 0)::VARCHAR
FROM (SELECT * EXCLUDE (known_to, first_seen_at) FROM event_versions) AS v

-- name: sum_event_changes
-- Grain: one row, the number of versions in the change log and the sum of their hashes.
-- Parameters: $files, those of the days. Run twice: the same row.
SELECT count(*), coalesce(sum(hash(v)), 0)::VARCHAR
FROM (FROM read_parquet($files, hive_partitioning = false)) AS v

-- name: sum_there
-- Grain: one row, the number of rows in the view `there` and the sum of their hashes.
-- Parameters: none. Run twice: the same row.
SELECT count(*), coalesce(sum(hash(t)), 0)::VARCHAR FROM there AS t
