-- name: select_events
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
        c.slug, c.title, c.description, c.displayed_date, c.date, c.date_end, c.date_type,
        c.is_estimated, c.categories, c.coins, c.impact, c.impact_band, c.impact_summary,
        c.source_url, c.snapshot_url, s.last_verified_at, c.created_at, s.updated_at, c.status,
        c.cancelled_at,
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
        slug, title, description, displayed_date, date, date_end, date_type, is_estimated,
        categories, coins, impact, impact_band, impact_summary, source_url, snapshot_url,
        last_verified_at, created_at, updated_at, status, cancelled_at,
        _almanac.date_precision(date, date_type, is_estimated) AS date_precision,
        known, extra
    FROM read_parquet($changes, hive_partitioning = false)
) AS v
JOIN unknown_fields AS u ON u.known = v.known
LEFT JOIN version_spans AS s ON s.event_id = v.event_id AND s.version = v.version
WHERE (s.known_to IS NULL) = $current
