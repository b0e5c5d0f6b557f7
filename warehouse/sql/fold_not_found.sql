-- An event whose own address answered 404 though it should be visible. Grain: event.
CREATE OR REPLACE TEMP TABLE absent AS
SELECT
    c.event_id,
    $is_proof AND c.date >= $lower AND ($upper IS NULL OR c.date <= $upper) AS is_second
FROM seen AS w
JOIN content AS c USING (event_id)
JOIN sight AS s USING (event_id)
WHERE w.status = 'not_found' AND c.status = 'scheduled' AND s.content_at < $content_at;
