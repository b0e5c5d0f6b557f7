-- Scheduled events that a complete look should have shown, and did not. Grain: event.
-- One whose row came but was rejected is not absent. `is_second` is one that the complete export
-- before this did not show either, with the cancellations looked at in between.
CREATE OR REPLACE TEMP TABLE absent AS
SELECT
    c.event_id,
    coalesce($is_export AND s.absent_export_at < $observed_at
        AND list_bool_or(list_transform(
            $cancellations_seen::STRUCT("since" TIMESTAMPTZ, observed_at TIMESTAMPTZ)[],
            lambda seen: seen.observed_at >= s.absent_export_at
                AND seen.since <= s.content_at)),
        false) AS is_second
FROM content AS c
JOIN sight AS s USING (event_id)
WHERE c.status = 'scheduled' AND s.content_at < $content_at
  AND c.date >= $lower AND ($upper IS NULL OR c.date <= $upper)
  AND ($coins IS NULL OR list_has_any(c.coins, $coins))
  AND ($categories IS NULL OR list_has_any(c.categories, $categories))
  AND ($covered IS NULL OR list_has_any(c.coins, $covered))
  AND NOT EXISTS (SELECT 1 FROM judged AS j WHERE j.event_id = c.event_id)
  AND NOT EXISTS (SELECT 1 FROM rejected AS r WHERE contains(r.raw, c.event_id));
