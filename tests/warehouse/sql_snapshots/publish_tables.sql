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
        event_id,
        slug, title, description, displayed_date, date, date_end, date_type, is_estimated,
        categories, coins, impact, impact_band, impact_summary, source_url, snapshot_url,
        last_verified_at, created_at, updated_at, status, cancelled_at,
        _almanac.date_precision(date, date_type, is_estimated) AS date_precision,
        first_seen_at, last_seen_at, missing_since, changed_at, content_at, version, known, extra
    FROM read_parquet($events, hive_partitioning = false)
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
