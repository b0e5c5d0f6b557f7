-- Differences between two sources: landing, lake and tables for verify, and two histories of refolded
-- days. Each only reads.

-- name: compare_versions
-- How many versions are published, only published, and only in the change log. Grain: one row.
WITH
    lake AS (
        SELECT
            event_id, version, known_from, known_basis, change_kinds, changed_fields, batch_id,
            feed, plan, content_at,
            {each content: @name},
            extra::VARCHAR AS extra
        FROM read_parquet($files, hive_partitioning = false)
    ),
    published AS (
        SELECT
            event_id, version, known_from, known_basis, change_kinds, changed_fields, batch_id,
            feed, plan, content_at,
            {each content: @name},
            extra::VARCHAR AS extra
        FROM published.main.event_versions
    )
SELECT
    (SELECT count(*) FROM published),
    (SELECT count(*) FROM (FROM published EXCEPT ALL FROM lake)),
    (SELECT count(*) FROM (FROM lake EXCEPT ALL FROM published));

-- name: compare_claims
-- How many claimed versions are published, only published, and only follow from the first versions
-- of the change log: one for each instant that they name before them. Grain: one row.
WITH
    first_versions AS (
        SELECT
            event_id, batch_id, known_from AS first_at, created_at, updated_at,
            if(status = 'cancelled', cancelled_at, NULL) AS cancelled_at
        FROM read_parquet($files, hive_partitioning = false)
        WHERE version = 1
    ),
    lake AS (
        SELECT DISTINCT event_id, batch_id, start AS known_from
        FROM (
            SELECT *, created_at AS start FROM first_versions
            UNION ALL SELECT *, updated_at FROM first_versions
            UNION ALL SELECT *, cancelled_at FROM first_versions
        )
        WHERE start < first_at
            AND start >= coalesce(
                if(created_at > first_at + INTERVAL 1 DAY, NULL, created_at), start
            )
    ),
    published AS (SELECT event_id, batch_id, known_from FROM published.main.event_claims)
SELECT
    (SELECT count(*) FROM published),
    (SELECT count(*) FROM (FROM published EXCEPT ALL FROM lake)),
    (SELECT count(*) FROM (FROM lake EXCEPT ALL FROM published));

-- name: compare_absences
-- How many changes of `missing_since` are published, only published, and only in the lake, where those
-- at one instant are in order. Grain: one row.
WITH
    lake AS (
        SELECT
            event_id, changed_at, last(missing_since ORDER BY place) AS missing_since,
            last(batch_id ORDER BY place) AS batch_id
        FROM read_parquet($files, hive_partitioning = false)
        GROUP BY event_id, changed_at
        HAVING last(missing_since ORDER BY place) IS NOT NULL OR count(*) % 2 = 1
    ),
    published AS (
        SELECT event_id, changed_at, missing_since, batch_id FROM published.main.event_absences
    )
SELECT
    (SELECT count(*) FROM published),
    (SELECT count(*) FROM (FROM published EXCEPT ALL FROM lake)),
    (SELECT count(*) FROM (FROM lake EXCEPT ALL FROM published));

-- name: compare_events
-- How many events are published, only published, and only in the checkpoint. Grain: one row.
WITH
    lake AS (
        SELECT
            s.event_id,
            {each content: @state.@name},
            s.extra,
            c.first_seen_at, s.last_seen_at, s.missing_since, c.changed_at, s.content_at, c.version
        FROM read_parquet($seen, hive_partitioning = false) AS s
        JOIN (
            SELECT * FROM read_parquet($content_changes, hive_partitioning = false)
            UNION ALL BY NAME
            SELECT f.*
            FROM read_parquet($content, hive_partitioning = false) AS f
            ANTI JOIN read_parquet($content_changes, hive_partitioning = false) AS n
                ON n.event_id = f.event_id
        ) AS c ON c.event_id = s.event_id
    ),
    published AS (
        SELECT
            event_id,
            {each content: @name},
            extra::VARCHAR AS extra,
            first_seen_at, last_seen_at, missing_since, changed_at, content_at, version
        FROM published.main.events
    )
SELECT
    (SELECT count(*) FROM published),
    (SELECT count(*) FROM (FROM published EXCEPT ALL FROM lake)),
    (SELECT count(*) FROM (FROM lake EXCEPT ALL FROM published));

-- name: compare_months
-- How many events by month the lake has, only the lake has, only the tables have. Grain: one row.
-- Parameters: $files, those of the months.
WITH
    lake AS (
        SELECT * EXCLUDE (extra), extra::VARCHAR AS extra
        FROM read_parquet($files, hive_partitioning = false, union_by_name = true)
    ),
    published AS (
        SELECT * EXCLUDE (last_seen_at, missing_since, content_at, extra), extra::VARCHAR AS extra
        FROM published.main.events
    )
SELECT
    (SELECT count(*) FROM lake),
    (SELECT count(*) FROM (FROM lake EXCEPT ALL FROM published)),
    (SELECT count(*) FROM (FROM published EXCEPT ALL FROM lake));

-- name: find_published_days
-- Whether the published file lists its days where this version looks for them. Grain: one row if so.
-- Needs: the published file attached as `published`. Reads only; run twice: the same.
SELECT table_name
FROM duckdb_tables()
WHERE database_name = 'published' AND schema_name = '_almanac' AND table_name = 'published';

-- name: list_published_days
-- The days of the change log as they were published. Grain: one row per day.
SELECT day, sha256 FROM published._almanac.published;

-- name: compare_rows
-- How many rows two warehouses have, only the first has, only the second has. Grain: one row.
-- Placeholders: table.
SELECT
    (SELECT count(*) FROM published.main.{table}),
    (SELECT count(*) FROM (
        FROM published.main.{table} EXCEPT ALL FROM replayed.main.{table}
    )),
    (SELECT count(*) FROM (
        FROM replayed.main.{table} EXCEPT ALL FROM published.main.{table}
    ));

-- name: count_history
-- How many observed versions the files of a change log hold, in all and of each kind of change.
-- Grain: one row per kind, and one without a kind for all of them.
-- Parameters: files. Reads only; run twice: the same.
WITH versions AS (
    FROM read_parquet($files, hive_partitioning = false) WHERE version > 0
)
SELECT NULL AS kind, count(*) AS versions FROM versions
UNION ALL
SELECT kind, count(*)
FROM (SELECT unnest(change_kinds) AS kind FROM versions)
GROUP BY kind;

-- name: list_merged_batches
-- The batches that the published file was made from. Grain: one row per batch.
-- Needs: the published file attached as `published`. Reads only; run twice: the same.
SELECT batch_id FROM published.main.batches WHERE status = 'merged';
