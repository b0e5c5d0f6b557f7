-- What each row of a look is against the state. Grain: event. Asked again, the same.
-- Stale: its content is older than what is known, by either clock; it is only counted.
-- Again: the record of an export as it was when last accepted, and nothing accepted since.
-- Parameters: $content_at of the look.
CREATE OR REPLACE TEMP TABLE judged AS
SELECT
    w.event_id,
    CASE
        WHEN s.event_id IS NULL THEN if(w.shown = 0, 'unknown', 'new')
        WHEN w.content_at < s.content_at THEN 'stale'
        -- What is held was accepted with the look that saw it last.
        WHEN believed(w.updated_at, w.observed_at) < believed(s.updated_at, s.last_seen_at)
            THEN 'stale'
        WHEN w.content_md5 = s.content_md5 THEN 'same'
        ELSE 'differs'
    END AS verdict
FROM wave AS w
LEFT JOIN sight AS s USING (event_id)
UNION ALL
SELECT s.event_id, if($content_at < s.content_at, 'stale', 'again')
FROM sight AS s
WHERE s.event_id IN (SELECT event_id FROM again);
