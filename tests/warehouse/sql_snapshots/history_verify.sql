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
            event_id,
            slug, title, description, displayed_date, date, date_end, date_type, is_estimated,
            categories, coins, impact, impact_band, impact_summary, source_url, snapshot_url,
            last_verified_at, created_at, updated_at, status, cancelled_at,
            extra::VARCHAR AS extra,
            first_seen_at, last_seen_at, missing_since, changed_at, content_at, version
        FROM read_parquet($file, hive_partitioning = false)
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
