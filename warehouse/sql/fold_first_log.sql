-- The first version of each event. Grain: event. Once per look.
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
FROM firsts;
