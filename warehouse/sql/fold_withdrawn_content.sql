-- The state takes the withdrawals. Grain: event. Once per look.
UPDATE content SET
    status = 'withdrawn', cancelled_at = NULL, version = content.version + 1,
    changed_at = $observed_at
FROM absent AS a
WHERE content.event_id = a.event_id AND a.is_second;
