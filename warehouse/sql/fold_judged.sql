-- What each row of a look is against the state. Grain: event. Asked again, the same.
-- Stale: its content is older than what is known, by either clock; it is only counted.
CREATE OR REPLACE TEMP TABLE judged AS
SELECT
    w.event_id,
    CASE
        WHEN s.event_id IS NULL THEN if(w.shown = 0, 'unknown', 'new')
        WHEN w.content_at < s.content_at OR coalesce(w.updated_at < s.updated_at, false)
            THEN 'stale'
        WHEN w.content_md5 = s.content_md5 THEN 'same'
        ELSE 'differs'
    END AS verdict
FROM wave AS w
LEFT JOIN sight AS s USING (event_id);
