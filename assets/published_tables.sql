-- Asset checks of the changes and the published tables: a query for each check. Each only reads.
-- Those of tables give one row: the number of faults, and some of them as text, NULL for none.

-- name: check_unique_events
-- Grain: one row, of the event_id that occur more than once. Run twice: the same row.
SELECT count(*), max(event_id)
FROM (SELECT event_id FROM events GROUP BY event_id HAVING count(*) > 1)

-- name: check_unique_versions
-- Grain: one row, of the (event_id, version) that occur more than once. Run twice: the same row.
SELECT count(*), max(event_id)
FROM (SELECT event_id FROM event_versions GROUP BY event_id, version HAVING count(*) > 1)

-- name: check_one_current_version
-- Grain: one row, of the events without exactly one current version of the same number.
-- Run twice: the same row.
SELECT count(*), max(event_id)
FROM (
    SELECT e.event_id
    FROM events AS e
    LEFT JOIN event_versions AS v ON v.event_id = e.event_id AND v.known_to IS NULL
    GROUP BY e.event_id, e.version
    HAVING count(v.version) <> 1 OR max(v.version) IS DISTINCT FROM e.version
)

-- name: check_spans_run_forward
-- Grain: one row, of the versions that end before they begin. Run twice: the same row.
SELECT count(*), max(event_id) FROM event_versions WHERE known_to < known_from

-- name: check_every_version
-- Grain: one row, the difference between the versions and those that the batches added.
-- Run twice: the same row.
SELECT versions - added, if(versions = added, NULL, versions || ' versions, ' || added || ' added')
FROM
    (SELECT count(*) AS versions FROM event_versions),
    (
        SELECT coalesce(sum(versions), 0)::BIGINT AS added
        FROM batches
        WHERE status = 'merged'
    )

-- name: check_day_file
-- Grain: one row for the file of a day: its rows, its different versions, and its
-- versions of other days. Parameters: $file, $day. Run twice: the same row.
SELECT
    count(*),
    count(DISTINCT (event_id, version)),
    count(*) FILTER (known_from::DATE <> $day)
FROM read_parquet($file, hive_partitioning = false)

-- name: check_no_new_fields
-- Grain: one row, of the fields without a column that the service began to send in the 7 days before
-- the newest batch. Fields of the first day are not new. Run twice: the same row.
SELECT count(*), string_agg(field, ', ' ORDER BY field)
FROM (
    SELECT field
    FROM (
        SELECT unnest(json_keys(extra)) AS field, known_from
        FROM event_versions
        WHERE extra IS NOT NULL
    )
    GROUP BY field
    HAVING
        min(known_from) >= (SELECT min(known_from) + INTERVAL 1 DAY FROM event_versions)
        AND min(known_from) > (SELECT max(observed_at) - INTERVAL 7 DAY FROM batches)
)
