-- Cancellations, seen with or without their event. Grain: event. Twice gives the same.
MERGE INTO cancelled AS k
USING (SELECT * FROM wave WHERE status = 'cancelled') AS w
ON k.event_id = w.event_id
WHEN MATCHED THEN UPDATE SET
    cancelled_at = if(w.content_at >= k.content_at, w.cancelled_at, k.cancelled_at),
    content_at = greatest(w.content_at, k.content_at),
    last_seen_at = greatest(k.last_seen_at, w.observed_at)
WHEN NOT MATCHED THEN INSERT
    (event_id, cancelled_at, content_at, first_seen_at, last_seen_at, batch_id)
    VALUES (w.event_id, w.cancelled_at, w.content_at, w.observed_at, w.observed_at, $batch_id);
