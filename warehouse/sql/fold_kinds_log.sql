-- New versions of known events. Grain: event, version. Once per look.
INSERT INTO log
SELECT
    event_id, version, observed_at, 'observed', change_kinds, changed_fields,
    $batch_id, $feed, $plan, content_at,
    slug, title, description, displayed_date, date, date_end, date_type, is_estimated,
    categories, coins, impact, impact_band, impact_summary, source_url,
    snapshot_url, last_verified_at, created_at, updated_at,
    status, cancelled_at, known, extra
FROM new_versions;
