-- A withdrawn event whose own address still answers 404: no news, but newer. Grain: event.
UPDATE sight SET content_at = $content_at
FROM seen AS w
JOIN content AS c ON c.event_id = w.event_id
WHERE sight.event_id = w.event_id AND w.status = 'not_found' AND c.status = 'withdrawn'
  AND sight.content_at < $content_at
  AND $is_proof AND c.date >= $lower AND ($upper IS NULL OR c.date <= $upper);
