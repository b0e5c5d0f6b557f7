-- Absent events are missing from now on: state, not history. Grain: event. Twice is once.
UPDATE sight SET
    missing_since = coalesce(sight.missing_since, $observed_at),
    absent_export_at = if($is_export, coalesce(sight.absent_export_at, $observed_at),
                          sight.absent_export_at)
FROM absent AS a
WHERE sight.event_id = a.event_id;
