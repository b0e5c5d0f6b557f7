-- A query for the rows of each published table, named select_<table>. full.py inserts the rows,
-- delta.py compares them with the published ones.

-- name: select_batches
-- Grain: one row per batch, from the metadata of the change log's files.
-- Parameters: $changes, the files. Run twice: the same rows.
WITH day_files AS (
    SELECT from_json(decode(value), '{
        "day": "DATE",
        "batches": [{
            "batch_id": "VARCHAR", "feed": "VARCHAR", "status": "VARCHAR", "why": "VARCHAR",
            "flagged": "VARCHAR", "arrived": "BIGINT", "good": "BIGINT", "rejected": "BIGINT",
            "duplicates": "BIGINT", "ignored": "BIGINT", "stale": "BIGINT", "versions": "BIGINT",
            "observed_at": "TIMESTAMPTZ", "content_at": "TIMESTAMPTZ", "landed_at": "TIMESTAMPTZ",
            "plan": "VARCHAR", "complete": "BOOLEAN", "why_incomplete": "VARCHAR",
            "attested": "BOOLEAN", "date_doubt": "VARCHAR",
            "requests": "BIGINT", "rows_claimed": "BIGINT", "bytes": "BIGINT",
            "scope": {
                "lower": "TIMESTAMPTZ", "upper": "TIMESTAMPTZ", "since": "TIMESTAMPTZ",
                "coins": ["VARCHAR"], "categories": ["VARCHAR"], "event_id": "VARCHAR"
            }
        }]
    }') AS day
    FROM parquet_kv_metadata($changes)
    WHERE decode(key) = 'almanac'
)
SELECT * EXCLUDE (scope), unnest(scope)
FROM (
    SELECT observed_date, unnest(batch)
    FROM (SELECT day.day AS observed_date, unnest(day.batches) AS batch FROM day_files)
)

-- name: select_coverage
-- Grain: one row per complete pull of events or cancellations of some days.
-- Parameters: $first_day, the first of them. Run twice: the same rows.
SELECT
    batch_id, feed, plan, lower, upper, since, coins, categories, observed_at, content_at,
    arrived AS rows
FROM batches
WHERE observed_date >= $first_day
    AND complete
    AND status = 'merged'
    AND feed IN ('export', 'events', 'cancellations')

-- name: select_coins
-- Grain: one row per coin, from the newest checkpoint.
-- Parameters: $coins, its file. Run twice: the same rows.
SELECT
    slug, symbol, name, rank, tracked, icon_url, upcoming_count, major_count, peak_impact,
    first_seen_at, last_seen_at, missing_since, content_at
FROM read_parquet($coins, hive_partitioning = false)

-- name: select_categories
-- Grain: one row per category, from the newest checkpoint.
-- Parameters: $categories, its file. Run twice: the same rows.
SELECT id, name, first_seen_at, last_seen_at
FROM read_parquet($categories, hive_partitioning = false)

-- name: select_cancellations
-- Grain: one row per event listed as cancelled, from the newest checkpoint.
-- Parameters: $cancellations, its file. Run twice: the same rows.
SELECT event_id, cancelled_at, first_seen_at, last_seen_at, batch_id
FROM read_parquet($cancellations, hive_partitioning = false)

-- name: select_events
-- Grain: one row per event, from the newest checkpoint.
-- Parameters: $everything; else only the events in `touched`; $seen, $content and
-- $content_changes, its files. Run twice: the same rows.
SELECT
    c.* EXCLUDE (extra, known),
    _almanac.earliest(date, date_precision, is_estimated) AS earliest,
    _almanac.latest(date, date_end, date_precision, earliest) AS latest,
    _almanac.displayed_date_full(displayed_date, date, date_end) AS displayed_date_full,
    u.unknown_fields,
    c.extra::JSON AS extra
FROM (
    SELECT
        s.event_id,
        {each content: @state.@name},
        _almanac.date_precision(c.date, c.date_type, c.is_estimated) AS date_precision,
        c.first_seen_at, s.last_seen_at, s.missing_since, c.changed_at, s.content_at, c.version,
        s.known, s.extra
    FROM (
        SELECT * FROM read_parquet($seen, hive_partitioning = false)
        WHERE $everything OR event_id IN (SELECT event_id FROM touched)
    ) AS s
    JOIN (
        SELECT * FROM read_parquet($content_changes, hive_partitioning = false)
        UNION ALL BY NAME
        SELECT f.*
        FROM read_parquet($content, hive_partitioning = false) AS f
        ANTI JOIN read_parquet($content_changes, hive_partitioning = false) AS n
            ON n.event_id = f.event_id
    ) AS c ON c.event_id = s.event_id
) AS c
JOIN unknown_fields AS u ON u.known = c.known

-- name: select_event_versions
-- Grain: one row per version of an event, from files of the change log.
-- Parameters: $changes, the files; $current, whether the current versions or the ended ones.
-- The table stores ended and current versions apart, so a query as of a recent instant skips most of
-- the ended ones. Run twice: the same rows.
SELECT
    v.* EXCLUDE (extra, known),
    _almanac.earliest(date, date_precision, is_estimated) AS earliest,
    _almanac.latest(date, date_end, date_precision, earliest) AS latest,
    _almanac.displayed_date_full(displayed_date, date, date_end) AS displayed_date_full,
    u.unknown_fields,
    v.extra::JSON AS extra,
    coalesce(s.first_seen_at, v.known_from) AS first_seen_at,
    s.known_to
FROM (
    SELECT
        event_id, version, known_from, known_basis, change_kinds, changed_fields, batch_id, feed,
        plan, content_at,
        {each content: @name},
        _almanac.date_precision(date, date_type, is_estimated) AS date_precision,
        known, extra
    FROM read_parquet($changes, hive_partitioning = false)
) AS v
JOIN unknown_fields AS u ON u.known = v.known
LEFT JOIN version_spans AS s ON s.event_id = v.event_id AND s.version = v.version
WHERE (s.known_to IS NULL) = $current

-- name: select_event_coins
-- Grain: one row per event and coin. A coin's own names come before those it had in an event.
-- Parameters: $everything; else only the events in `touched`; $labels, the file of the names in
-- events. Run twice: the same rows.
SELECT
    l.event_id,
    l.coin,
    coalesce(c.symbol, n.symbol) AS symbol,
    coalesce(c.name, n.name) AS name
FROM (
    SELECT event_id, unnest(coins) AS coin
    FROM events
    WHERE $everything OR event_id IN (SELECT event_id FROM touched)
) AS l
LEFT JOIN coins AS c ON c.slug = l.coin
LEFT JOIN read_parquet($labels, hive_partitioning = false) AS n ON n.slug = l.coin

-- name: select_event_categories
-- Grain: one row per event and category. Events carry names; the id is found by name, in any case.
-- Parameters: $everything; else only the events in `touched`. Run twice: the same rows.
SELECT l.event_id, c.category_id, l.category
FROM (
    SELECT event_id, unnest(categories) AS category
    FROM events
    WHERE $everything OR event_id IN (SELECT event_id FROM touched)
) AS l
LEFT JOIN (
    SELECT lower(name) AS folded, min(id) AS category_id FROM categories GROUP BY lower(name)
) AS c ON c.folded = lower(l.category)

-- name: select_coin_snapshots
-- Grain: one row per coin and day on which it was observed.
-- Parameters: $snapshots, the files of the days. Run twice: the same rows.
-- The day is in the name of the innermost folder; the names of the folders above do not matter.
SELECT
    regexp_extract(filename, 'observed_date=([0-9-]+)/[^/]+$', 1)::DATE AS observed_date,
    slug AS coin, rank, tracked, upcoming_count, major_count, peak_impact, observed_at,
    batch_id
FROM read_parquet($snapshots, hive_partitioning = false, filename = true)

-- name: select_rejects
-- Grain: one row per row that could not be read. A file whose batch never took effect is left out.
-- Parameters: $rejects, the files of the batches. Run twice: the same rows.
-- The day is in the name of the innermost folder; the names of the folders above do not matter.
SELECT regexp_extract(filename, 'observed_date=([0-9-]+)/[^/]+$', 1)::DATE AS observed_date,
    batch_id, position, reason, raw
FROM read_parquet($rejects, hive_partitioning = false, filename = true)
WHERE batch_id IN (SELECT batch_id FROM batches)

-- name: select_requests
-- Grain: one row per attempt of a request.
-- Parameters: $requests, the log's files. Run twice: the same rows.
-- Lines that are not UTF-8 or not JSON objects, such as one that a crash truncated, are left out; a
-- value of another type is NULL.
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
FROM read_csv(
    $requests,
    auto_detect = false, columns = {'line': 'VARCHAR'}, header = false,
    delim = e'\x01', quote = '', escape = '', ignore_errors = true,
    strict_mode = false, max_line_size = 16_000_000
)
WHERE CASE WHEN json_valid(line) THEN json_type(line) = 'OBJECT' ELSE false END
ORDER BY sent_at

-- name: select_usage
-- Grain: one row per read-out of the quota.
-- Parameters: $usage, the log's file. Run twice: the same rows.
-- Lines that are not UTF-8 or not JSON objects, such as one that a crash truncated, are left out; a
-- value of another type is NULL.
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
FROM read_csv(
    $usage,
    auto_detect = false, columns = {'line': 'VARCHAR'}, header = false,
    delim = e'\x01', quote = '', escape = '', ignore_errors = true,
    strict_mode = false, max_line_size = 16_000_000
)
WHERE CASE WHEN json_valid(line) THEN json_type(line) = 'OBJECT' ELSE false END
ORDER BY read_at

-- name: select_published
-- Grain: one row per day of the change log, with the number of rows in its file.
-- Parameters: $days and $hashes, side by side; $changes, their files. Run twice: the same rows.
SELECT l.day::DATE AS day, l.sha256, m.num_rows AS versions
FROM (
    SELECT unnest($days) AS day, unnest($hashes) AS sha256, unnest($changes) AS file
) AS l
-- A path is bound as a pattern of itself (sql.py), and returned as it is.
JOIN parquet_file_metadata($changes) AS m
    ON m.file_name = regexp_replace(l.file, '\[([*?\[])\]', '\1', 'g')

-- name: select_first_look
-- Grain: one row, the instants of the first and last observation of events; NULL if there was none.
-- Parameters: none. Run twice: the same row.
SELECT min(observed_at) AS first_at, max(observed_at) AS last_at
FROM batches
WHERE status = 'merged' AND feed IN ('export', 'events', 'event', 'deliveries')
