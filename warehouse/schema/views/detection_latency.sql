-- name: view_detection_latency
-- Grain: one row per observed version whose instant at the service is known: created while it was
-- watched, cancelled, or another change that moved `updated_at`.
-- What is revealed or withdrawn was changed at no instant that the service names.
SELECT
    event_id,
    version,
    kind,
    happened_at,
    known_from,
    (epoch_us(known_from) - epoch_us(happened_at)) / 1e6 AS latency_s,
    feed,
    plan
FROM (
    SELECT
        new.event_id, new.version, new.known_from, new.feed, new.plan,
        CASE
            WHEN list_contains(new.change_kinds, 'created') THEN 'created'
            WHEN list_contains(new.change_kinds, 'cancelled') THEN 'cancelled'
            WHEN new.updated_at > old.updated_at
                AND list_has_any(new.change_kinds, [
                    'rescheduled', 'made_exact', 'made_estimated', 'rescored', 'revised', 'restored'
                ]) THEN 'updated'
        END AS kind,
        CASE kind
            WHEN 'created' THEN new.created_at
            WHEN 'cancelled' THEN new.cancelled_at
            ELSE new.updated_at
        END AS happened_at
    FROM event_versions AS new
    LEFT JOIN state.ended_versions AS old
        ON old.event_id = new.event_id AND old.version = new.version - 1
)
WHERE kind IS NOT NULL AND happened_at IS NOT NULL
