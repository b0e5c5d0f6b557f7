-- What a record touches that is as it was when last accepted. Grain: event. Once per look.
-- Parameters: $content_at, $observed_at of the look.
UPDATE sight SET
    content_at = $content_at,
    last_seen_at = $observed_at,
    missing_since = NULL,
    absent_export_at = NULL
WHERE event_id IN (SELECT event_id FROM judged WHERE verdict = 'again');
