-- The last steps before a file is published, once all batches are folded.
--
--     (forget_batch, forget_record →) insert_batch, insert_record, insert_rejects
--     → note_first_look → forget_days → note_days
--     → empty_log → insert_requests; empty_log → insert_usage   (if the logs changed)
--     → (feed.sql) → check_versions, check_absences, check_counts → note_publication

-- name: find_last_key
-- The fold key of the last batch in the file. Grain: one row, or none in an empty file.
-- Parameters: $feeds, in the order of their ranks.
SELECT observed_at, content_at, list_position($feeds, feed) - 1 AS rank, batch_id
FROM batches
ORDER BY observed_at DESC, content_at DESC, rank DESC, batch_id DESC
LIMIT 1;

-- name: list_merged
-- The batches in the file, their status, and whether they were folded as released. Grain: batch.
SELECT batch_id, b.status, r.released, b.observed_at
FROM batches AS b
JOIN state.batch_records AS r USING (batch_id)
ORDER BY batch_id;

-- name: list_records
-- The accounts of the batches that were observed on some days. Grain: batch.
-- Parameters: $since and $until, inclusive.
SELECT batch_id, r.record
FROM batches AS b
JOIN state.batch_records AS r USING (batch_id)
WHERE b.observed_date BETWEEN $since AND $until
ORDER BY b.observed_at, batch_id;

-- name: forget_batch
-- Remove the row of a batch, of which more deliveries were folded. Run twice: the same.
DELETE FROM batches WHERE batch_id = $batch_id;

-- name: forget_record
-- Remove the account of a batch, of which more deliveries were folded. Run twice: the same.
DELETE FROM state.batch_records WHERE batch_id = $batch_id;

-- name: insert_record
-- The account of a batch as JSON. Grain: batch. Once for each.
INSERT INTO state.batch_records VALUES ($batch_id, $released, $record);

-- name: insert_batch
-- The account of a batch as a row. Grain: batch. Once for each.
-- Parameters: $row, with the columns but observed_date.
INSERT INTO batches BY NAME
SELECT observed_at::TIMESTAMPTZ::DATE AS observed_date, * FROM (SELECT unnest($row));

-- name: insert_rejects
-- The rejected rows of a batch. Grain: row of the batch. Once for each batch.
INSERT INTO rejects BY NAME
SELECT $observed_at::DATE AS observed_date, batch_id, position, reason, raw
FROM rejected;

-- name: note_first_look
-- The times of the first and the last observation of events; NULL without one. Grain: one row.
DELETE FROM _almanac.first_look;
INSERT INTO _almanac.first_look
SELECT min(observed_at) AS first_at, max(observed_at) AS last_at
FROM batches
WHERE status = 'merged' AND feed IN ('export', 'events', 'event', 'deliveries');

-- name: forget_days
-- Remove the observed days from $first_day on. Run twice: the same.
DELETE FROM state.days WHERE day >= $first_day;

-- name: note_days
-- The versions of each observed day from $first_day on, and a hash of them. Grain: day.
-- Placeholders: columns.
INSERT INTO state.days
SELECT
    b.day, coalesce(v.versions, 0),
    coalesce(v.versions, 0) || '-' || coalesce(v.total, 0)
FROM (SELECT DISTINCT observed_date AS day FROM batches WHERE observed_date >= $first_day) AS b
LEFT JOIN (
    SELECT known_from::DATE AS day, count(*) AS versions, sum(hash({columns})) AS total
    FROM event_versions
    WHERE known_from >= $first_day::TIMESTAMPTZ
    GROUP BY 1
) AS v ON v.day = b.day;

-- name: list_days
-- The observed days, with the number of their versions and a hash of them. Grain: day.
SELECT day, versions, content FROM state.days ORDER BY day;

-- name: log_lines
-- The JSON objects of a log's files, $files. Grain: line. Lines that are not UTF-8 or not JSON objects,
-- such as one that a crash truncated, are left out.
SELECT line
FROM read_csv(
    $files,
    auto_detect = false, columns = {'line': 'VARCHAR'}, header = false,
    delim = e'\x01', quote = '', escape = '', ignore_errors = true,
    strict_mode = false, max_line_size = 16_000_000
)
WHERE CASE WHEN json_valid(line) THEN json_type(line) = 'OBJECT' ELSE false END

-- name: empty_log
-- Remove the rows of a table of logs. Placeholders: table. Run twice: the same.
DELETE FROM {table};

-- name: insert_requests
-- Grain: one row per attempt of a request.
-- Parameters: $files, the log's files.
-- A value of another type is NULL.
INSERT INTO requests BY NAME
SELECT
    TRY_CAST(line ->> '$.at' AS TIMESTAMPTZ) AS sent_at,
    line ->> '$.path' AS path,
    TRY_CAST(line ->> '$.status' AS INTEGER) AS status,
    TRY_CAST(line ->> '$.seconds' AS DOUBLE) AS seconds,
    TRY_CAST(line ->> '$.bytes' AS BIGINT) AS bytes,
    TRY_CAST(line ->> '$.attempt' AS INTEGER) AS attempt,
    line ->> '$.key_fingerprint' AS key_fingerprint,
    TRY_CAST(line ->> '$.quota' AS BIGINT) AS quota,
    TRY_CAST(line ->> '$.remaining' AS BIGINT) AS remaining,
    TRY_CAST(line ->> '$.reset_at' AS TIMESTAMPTZ) AS reset_at,
    line ->> '$.request_id' AS request_id
FROM ({log_lines})
ORDER BY sent_at;

-- name: insert_usage
-- Grain: one row per read-out of the quota.
-- Parameters: $files, the log's file.
-- A value of another type is NULL.
INSERT INTO usage BY NAME
SELECT
    TRY_CAST(line ->> '$.at' AS TIMESTAMPTZ) AS read_at,
    line ->> '$.plan' AS plan,
    TRY_CAST(line ->> '$.used' AS BIGINT) AS used,
    TRY_CAST(line ->> '$.quota' AS BIGINT) AS quota,
    TRY_CAST(line ->> '$.remaining' AS BIGINT) AS remaining,
    TRY_CAST(line ->> '$.reset_at' AS TIMESTAMPTZ) AS reset_at,
    TRY_CAST(line ->> '$.rate' AS DOUBLE) AS rate,
    TRY_CAST(line ->> '$.burst' AS BIGINT) AS burst,
    TRY_CAST(line ->> '$.period_start' AS TIMESTAMPTZ) AS period_start,
    TRY_CAST(line ->> '$.period_end' AS TIMESTAMPTZ) AS period_end
FROM ({log_lines})
ORDER BY read_at;

-- name: note_publication
-- The id of this publication, and when the file was written, by the machine's clock. Grain: fact.
-- They replace those of the publication before.
DELETE FROM _almanac.facts WHERE name <> 'feed_id';
INSERT INTO _almanac.facts VALUES ('publication', $publication), ('published_at', $published_at);

-- name: check_versions
-- Events that break a rule: versions are numbered without gap or repetition from 1 on, begin before
-- they end, and the last one is current. Grain: event, three at most. Parameters: $batches, those whose
-- events are checked; NULL for all.
SELECT
    event_id, count(*) AS versions, min(version) AS first_version, max(version) AS last_version,
    list(version) FILTER (known_to IS NULL) AS current_versions
FROM versions
WHERE $batches IS NULL
    OR event_id IN (SELECT event_id FROM versions WHERE batch_id IN (SELECT unnest($batches::VARCHAR[])))
GROUP BY event_id
HAVING first_version <> 1
    OR versions <> last_version
    OR current_versions IS DISTINCT FROM [last_version]
    OR bool_or(known_to < known_from)
ORDER BY event_id
LIMIT 3;

-- name: check_absences
-- Events whose last change of `missing_since` is not that of the event. Grain: event, three at most.
SELECT coalesce(c.event_id, a.event_id) AS event_id
FROM (SELECT event_id, missing_since FROM current_versions WHERE missing_since IS NOT NULL) AS c
FULL JOIN (
    SELECT event_id, arg_max_null(missing_since, changed_at) AS missing_since
    FROM event_absences
    GROUP BY event_id
) AS a ON a.event_id = c.event_id
WHERE a.missing_since IS DISTINCT FROM c.missing_since
ORDER BY 1
LIMIT 3;

-- name: check_counts
-- How many versions there are, and how many there should be. Grain: one row.
SELECT
    (SELECT count(*) FROM versions),
    (SELECT coalesce(sum(versions), 0) FROM state.days);

-- name: count_differences
-- How many versions of each day are new or changed, and how many were removed, in comparison with
-- the file that was published before. Grain: day. Parameters: $first_day, and $days.
-- Needs: that file attached as `before`.
-- Placeholders: columns.
WITH
    old AS (
        SELECT known_from::DATE AS day, hash({columns}) AS row_hash
        FROM before.main.event_versions WHERE known_from >= $first_day::TIMESTAMPTZ
    ),
    new AS (
        SELECT known_from::DATE AS day, hash({columns}) AS row_hash
        FROM event_versions WHERE known_from >= $first_day::TIMESTAMPTZ
    )
SELECT d.day, coalesce(a.added, 0), coalesce(r.removed, 0)
FROM (SELECT unnest($days::DATE[]) AS day) AS d
LEFT JOIN (SELECT day, count(*) AS added FROM (FROM new EXCEPT ALL FROM old) GROUP BY day) AS a
    ON a.day = d.day
LEFT JOIN (SELECT day, count(*) AS removed FROM (FROM old EXCEPT ALL FROM new) GROUP BY day) AS r
    ON r.day = d.day
ORDER BY 1;

-- name: make_index
-- Finds the versions of an event, which readers look up one by one. Once per publication.
CREATE INDEX current_versions_by_event ON current_versions (event_id);
CREATE INDEX ended_versions_by_event ON ended_versions (event_id);

-- name: drop_index
-- Run twice: the same.
DROP INDEX IF EXISTS current_versions_by_event;
DROP INDEX IF EXISTS ended_versions_by_event;
