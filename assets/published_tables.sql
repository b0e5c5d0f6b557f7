-- Asset checks of the changes and the published tables: a query for each check. Each only reads.

-- name: check_event_keys
-- Grain: one row, the number of event_id that occur more than once. Run twice: the same row.
SELECT count(*) FROM (SELECT 1 FROM events GROUP BY event_id HAVING count(*) > 1)

-- name: check_version_keys
-- Grain: one row, the number of (event_id, version) that occur more than once. Run twice: the same.
SELECT count(*)
FROM (SELECT 1 FROM event_versions GROUP BY event_id, version HAVING count(*) > 1)

-- name: check_current_version
-- Grain: one row, the number of events without exactly one current version of the same number.
-- Run twice: the same row.
SELECT count(*)
FROM (
    SELECT e.event_id
    FROM events AS e
    LEFT JOIN event_versions AS v ON v.event_id = e.event_id AND v.known_to IS NULL
    GROUP BY e.event_id, e.version
    HAVING count(v.version) <> 1 OR max(v.version) IS DISTINCT FROM e.version
)

-- name: check_known_spans
-- Grain: one row, the number of versions that end before they begin. Run twice: the same row.
SELECT count(*) FROM event_versions WHERE known_to < known_from

-- name: count_versions
-- Grain: one row, the number of versions, and how many the batches added. Run twice: the same row.
SELECT
    (SELECT count(*) FROM event_versions),
    (SELECT coalesce(sum(versions), 0) FROM batches WHERE status = 'merged')

-- name: check_quarantined
-- Grain: one row per quarantined batch, newest first. Run twice: the same rows.
SELECT batch_id, why FROM batches WHERE status = 'quarantined' ORDER BY observed_at DESC

-- name: check_day_file
-- Grain: one row for the file of a day: its rows, its different versions, and its
-- versions of other days. Parameters: $file, $day. Run twice: the same row.
SELECT
    count(*),
    count(DISTINCT (event_id, version)),
    count(*) FILTER (known_from::DATE <> $day)
FROM read_parquet($file, hive_partitioning = false)

-- name: find_new_fields
-- Grain: one row per field without a column that the service began to send, with the instant at
-- which it was first seen. Fields of the first day are not new. Run twice: the same rows.
SELECT field, min(known_from) AS first_seen_at
FROM (SELECT unnest(json_keys(extra)) AS field, known_from FROM event_versions WHERE extra IS NOT NULL)
GROUP BY field
HAVING min(known_from) >= (SELECT min(known_from) + INTERVAL 1 DAY FROM event_versions)
ORDER BY first_seen_at, field
