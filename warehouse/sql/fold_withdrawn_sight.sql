-- The state takes the withdrawals. Grain: event. Twice is once.
UPDATE sight SET
    content_at = $content_at, content_md5 = NULL, row_md5 = NULL,
    missing_since = NULL, absent_export_at = NULL
FROM absent AS a
WHERE sight.event_id = a.event_id AND a.is_second;
