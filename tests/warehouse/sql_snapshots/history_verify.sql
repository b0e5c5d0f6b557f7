-- name: compare_versions
WITH
    lake AS (
        SELECT
            event_id, version, known_from, known_basis, change_kinds, changed_fields, batch_id,
            feed, plan, content_at,
            slug, title, description, displayed_date, date, date_end, date_type, is_estimated,
            categories, coins, impact, impact_band, impact_summary, source_url, snapshot_url,
            last_verified_at, created_at, updated_at, status, cancelled_at,
            extra::VARCHAR AS extra
        FROM read_parquet($files, hive_partitioning = false)
    ),
    published AS (
        SELECT
            event_id, version, known_from, known_basis, change_kinds, changed_fields, batch_id,
            feed, plan, content_at,
            slug, title, description, displayed_date, date, date_end, date_type, is_estimated,
            categories, coins, impact, impact_band, impact_summary, source_url, snapshot_url,
            last_verified_at, created_at, updated_at, status, cancelled_at,
            extra::VARCHAR AS extra
        FROM published.main.event_versions
    )
SELECT
    (SELECT count(*) FROM published),
    (SELECT count(*) FROM (FROM published EXCEPT ALL FROM lake)),
    (SELECT count(*) FROM (FROM lake EXCEPT ALL FROM published));

-- name: compare_events
WITH
    lake AS (
        SELECT
            s.event_id,
            c.slug, c.title, c.description, c.displayed_date, c.date, c.date_end, c.date_type,
            c.is_estimated, c.categories, c.coins, c.impact, c.impact_band, c.impact_summary,
            c.source_url, c.snapshot_url, s.last_verified_at, c.created_at, s.updated_at, c.status,
            c.cancelled_at,
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
            slug, title, description, displayed_date, date, date_end, date_type, is_estimated,
            categories, coins, impact, impact_band, impact_summary, source_url, snapshot_url,
            last_verified_at, created_at, updated_at, status, cancelled_at,
            extra::VARCHAR AS extra,
            first_seen_at, last_seen_at, missing_since, changed_at, content_at, version
        FROM published.main.events
    )
SELECT
    (SELECT count(*) FROM published),
    (SELECT count(*) FROM (FROM published EXCEPT ALL FROM lake)),
    (SELECT count(*) FROM (FROM lake EXCEPT ALL FROM published));
