-- Grain: one row per version of the events that were touched: until when it holds.
-- Parameters: none. Run twice: changes nothing.
UPDATE event_versions SET known_to = s.known_to, first_seen_at = s.first_seen_at
FROM (
    SELECT t.event_id, t.version, p.known_to, CASE
        WHEN p.event_id IS NOT NULL THEN p.first_seen_at
        WHEN t.version > 0 THEN t.known_from
    END AS first_seen_at
    FROM version_starts AS t
    LEFT JOIN version_spans AS p ON p.event_id = t.event_id AND p.version = t.version
) AS s
WHERE event_versions.event_id = s.event_id
    AND event_versions.version = s.version
    AND (
        event_versions.known_to IS DISTINCT FROM s.known_to
        OR event_versions.first_seen_at IS DISTINCT FROM s.first_seen_at
    )
