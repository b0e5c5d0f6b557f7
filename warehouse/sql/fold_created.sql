-- First sightings that are creations: a complete look at their date came before they were created.
-- One that is created long after it was seen says nothing of when it was. Grain: event.
CREATE OR REPLACE TEMP TABLE created AS
SELECT DISTINCT w.event_id
FROM wave AS w
JOIN judged AS j ON j.event_id = w.event_id AND j.verdict = 'new'
JOIN watched AS v
    ON v.since < believed(w.created_at, w.observed_at) AND w.date BETWEEN v.lower AND v.upper
WHERE (v.coins IS NULL OR list_has_any(v.coins, w.coins))
  AND (v.categories IS NULL OR list_has_any(v.categories, w.categories));
