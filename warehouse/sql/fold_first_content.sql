-- New events enter the state. Grain: event. Once per look.
INSERT INTO content
SELECT
    event_id, slug, title, description, displayed_date, date, date_end, date_type, is_estimated,
    categories, coins, impact, impact_band, impact_summary, source_url, snapshot_url, created_at,
    status, cancelled_at, observed_at, observed_at, 1
FROM firsts;
