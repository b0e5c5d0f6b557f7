-- First sightings. Grain: event. A cancellation that was seen before and is not older holds;
-- against a sighting that is cancelled itself, one that is newer.
-- A view: a million wide rows need not be written twice.
CREATE OR REPLACE TEMP VIEW firsts AS
SELECT
    w.event_id, w.observed_at, w.content_md5, w.row_md5,
    coalesce(
        k.content_at > w.content_at OR (k.content_at = w.content_at AND w.status = 'scheduled'),
        false
    ) AS is_cancelled_before,
    if(is_cancelled_before, k.content_at, w.content_at) AS content_at,
    w.slug,
    w.title,
    w.description,
    w.displayed_date,
    w.date,
    w.date_end,
    w.date_type,
    w.is_estimated,
    w.categories,
    w.coins,
    w.impact,
    w.impact_band,
    w.impact_summary,
    w.source_url,
    w.snapshot_url,
    w.last_verified_at,
    w.created_at,
    w.updated_at,
    w.shown AS known, w.extra,
    if(is_cancelled_before, 'cancelled', w.status) AS status,
    if(is_cancelled_before, k.cancelled_at, w.cancelled_at) AS cancelled_at,
    n.event_id IS NOT NULL AS is_created
FROM wave AS w
JOIN judged AS j ON j.event_id = w.event_id AND j.verdict = 'new'
LEFT JOIN cancelled AS k ON k.event_id = w.event_id
LEFT JOIN created AS n ON n.event_id = w.event_id;
