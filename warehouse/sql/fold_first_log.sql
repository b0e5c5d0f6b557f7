-- The first version of each event, and what is claimed of the time before it was watched.
-- Grain: event, version (0 is the claim). Its content is known only if it was never updated.
INSERT INTO log
SELECT
    event_id, 1, observed_at, 'observed',
    list_concat([if(is_created, 'created', 'revealed')],
                if(status = 'cancelled', ['cancelled'], [])),
    [], $batch_id, $feed, $plan, content_at,
    slug, title, description, displayed_date, date, date_end, date_type, is_estimated,
    categories, coins, impact, impact_band, impact_summary, source_url,
    snapshot_url, last_verified_at, created_at, updated_at,
    status, cancelled_at, known, extra
FROM firsts
UNION ALL
SELECT
    event_id, 0, created_at, 'claimed', ['created'], [], $batch_id, $feed, $plan, created_at,
    if(updated_at = created_at, slug, NULL),
    if(updated_at = created_at, title, NULL),
    if(updated_at = created_at, description, NULL),
    if(updated_at = created_at, displayed_date, NULL),
    if(updated_at = created_at, date, NULL),
    if(updated_at = created_at, date_end, NULL),
    if(updated_at = created_at, date_type, NULL),
    if(updated_at = created_at, is_estimated, NULL),
    if(updated_at = created_at, categories, NULL),
    if(updated_at = created_at, coins, NULL),
    if(updated_at = created_at, impact, NULL),
    if(updated_at = created_at, impact_band, NULL),
    if(updated_at = created_at, impact_summary, NULL),
    if(updated_at = created_at, source_url, NULL),
    if(updated_at = created_at, snapshot_url, NULL),
    if(updated_at = created_at AND last_verified_at <= created_at, last_verified_at, NULL),
    created_at,
    if(updated_at = created_at, updated_at, NULL),
    'scheduled', NULL,
    CASE
        WHEN updated_at IS DISTINCT FROM created_at THEN known & $created_at_bit
        WHEN last_verified_at <= created_at THEN known
        ELSE known & ~$last_verified_at_bit
    END,
    if(updated_at = created_at, extra, NULL)
FROM firsts
WHERE created_at < observed_at;
