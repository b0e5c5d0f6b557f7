-- name: list_versions
CREATE TEMP TABLE {name} AS
SELECT
    rowid AS row_id, published_seq, event_id, known_from,
    hash(slug, title, description, displayed_date, date, date_end, date_type, is_estimated,
    categories, coins, impact, impact_band, impact_summary, source_url, snapshot_url,
    last_verified_at, created_at, updated_at, status, cancelled_at) AS content_hash,
    row_number() OVER (PARTITION BY event_id, known_from, content_hash ORDER BY version) AS nth
FROM {source}
WHERE known_from >= $first_day::TIMESTAMPTZ
UNION ALL
SELECT rowid, published_seq, event_id, known_from, 0, version
FROM {source}
WHERE known_from < $first_day::TIMESTAMPTZ;
