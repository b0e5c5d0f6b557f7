-- name: show_seen
UPDATE events SET
    last_seen_at = s.last_seen_at, content_at = s.content_at, missing_since = s.missing_since,
    last_verified_at = s.last_verified_at,
    updated_at = s.updated_at,
    extra = s.extra::JSON
FROM event_seen AS s
WHERE events.event_id = s.event_id
    AND (
        events.content_at IS DISTINCT FROM s.content_at
        OR events.last_seen_at IS DISTINCT FROM s.last_seen_at
        OR events.missing_since IS DISTINCT FROM s.missing_since
        OR events.extra IS DISTINCT FROM s.extra
        OR row(events.last_verified_at, events.updated_at) IS DISTINCT FROM row(s.last_verified_at,
        s.updated_at)
    );
