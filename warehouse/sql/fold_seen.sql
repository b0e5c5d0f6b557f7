-- What every accepted row touches, changed or not. Grain: event. Once per look.
-- A row without content (a cancellation) is no sight of the event.
UPDATE sight SET
    known = CASE
        WHEN has(w.shown, 'impact_band') AND NOT has(w.shown, 'impact')
             AND w.impact_band IS DISTINCT FROM c.impact_band
            THEN (sight.known | w.shown) & ~$impact_bit
        ELSE sight.known | w.shown
    END,
    last_verified_at =
        if(has(w.shown, 'last_verified_at'), w.last_verified_at, sight.last_verified_at),
    -- One that was not believed must not become so, only because the event is seen without it.
    updated_at = CASE
        WHEN has(w.shown, 'updated_at') THEN w.updated_at
        WHEN w.shown = 0 THEN sight.updated_at
        ELSE believed(sight.updated_at, sight.last_seen_at)
    END,
    extra = coalesce(w.extra, sight.extra),
    content_at = w.content_at,
    last_seen_at = if(w.shown = 0, sight.last_seen_at, w.observed_at),
    missing_since = NULL,
    absent_export_at = NULL,
    content_md5 = w.content_md5,
    row_md5 = w.row_md5
FROM wave AS w
JOIN judged AS j ON j.event_id = w.event_id AND j.verdict IN ('same', 'differs')
JOIN content AS c ON c.event_id = w.event_id
WHERE sight.event_id = w.event_id;
