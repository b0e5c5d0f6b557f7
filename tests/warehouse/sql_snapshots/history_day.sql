-- name: find_claims
CREATE OR REPLACE TEMP VIEW claims AS
SELECT
    event_id, 0::INTEGER AS version, created_at AS known_from, 'claimed' AS known_basis,
    ['created'] AS change_kinds, []::VARCHAR[] AS changed_fields, batch_id, feed, plan,
    created_at AS content_at,
    if(updated_at = created_at, slug, NULL) AS slug,
    if(updated_at = created_at, title, NULL) AS title,
    if(updated_at = created_at, description, NULL) AS description,
    if(updated_at = created_at, displayed_date, NULL) AS displayed_date,
    if(updated_at = created_at, date, NULL) AS date,
    if(updated_at = created_at, date_end, NULL) AS date_end,
    if(updated_at = created_at, date_type, NULL) AS date_type,
    if(updated_at = created_at, is_estimated, NULL) AS is_estimated,
    if(updated_at = created_at, categories, NULL) AS categories,
    if(updated_at = created_at, coins, NULL) AS coins,
    if(updated_at = created_at, impact, NULL) AS impact,
    if(updated_at = created_at, impact_band, NULL) AS impact_band,
    if(updated_at = created_at, impact_summary, NULL) AS impact_summary,
    if(updated_at = created_at, source_url, NULL) AS source_url,
    if(updated_at = created_at, snapshot_url, NULL) AS snapshot_url,
    if(updated_at = created_at AND last_verified_at <= created_at, last_verified_at, NULL)
        AS last_verified_at,
    created_at,
    if(updated_at = created_at, updated_at, NULL) AS updated_at,
    'scheduled' AS status, NULL::TIMESTAMPTZ AS cancelled_at,
    CASE
        WHEN updated_at IS DISTINCT FROM created_at
            THEN known & (1 << (list_position(event_fields(), 'created_at') - 1))
        WHEN last_verified_at > created_at
            THEN known & ~(1 << (list_position(event_fields(), 'last_verified_at') - 1))
        ELSE known
    END AS known,
    if(updated_at = created_at, extra, NULL) AS extra
FROM day_versions
WHERE version = 1 AND created_at < known_from;
