-- name: list_versions_before
CREATE TEMP TABLE versions_before AS
SELECT
    published_seq, event_id, known_from, hash(slug, title, description, displayed_date, date,
    date_end, date_type, is_estimated, categories, coins, impact, impact_band, impact_summary,
    source_url, snapshot_url, last_verified_at, created_at, updated_at, status, cancelled_at) AS content_hash,
    row_number() OVER (PARTITION BY event_id, known_from, content_hash ORDER BY version) AS nth
FROM before.main.event_versions;
CREATE TEMP TABLE removed_before AS FROM before.state.removed_versions;

-- name: keep_places
UPDATE event_versions SET published_seq = v.published_seq
FROM (
    SELECT row_id, b.published_seq
    FROM (
        SELECT
            rowid AS row_id, event_id, known_from, hash(slug, title, description, displayed_date,
            date, date_end, date_type, is_estimated, categories, coins, impact, impact_band,
            impact_summary, source_url, snapshot_url, last_verified_at, created_at, updated_at,
            status, cancelled_at) AS content_hash,
            row_number() OVER (PARTITION BY event_id, known_from, content_hash ORDER BY version) AS nth
        FROM event_versions
    )
    LEFT JOIN versions_before AS b USING (event_id, known_from, content_hash, nth)
) AS v
WHERE event_versions.rowid = v.row_id;
