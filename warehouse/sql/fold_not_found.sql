-- An event whose own address answered 404 though it should be visible. Grain: event.
-- A proof that is as old as what is known is the later word; a mere absence is not.
CREATE OR REPLACE TEMP TABLE absent AS
SELECT c.event_id, $is_proof AS is_second
FROM seen AS w
JOIN content AS c USING (event_id)
JOIN sight AS s USING (event_id)
WHERE w.status = 'not_found' AND c.status = 'scheduled'
  AND (s.content_at < $content_at OR ($is_proof AND s.content_at = $content_at))
  AND c.date >= $lower AND ($upper IS NULL OR c.date <= $upper)
  AND ($covered IS NULL OR list_has_any(c.coins, $covered));
