-- What push should have brought: a question to the published file. It only reads.

-- name: list_pulled_changes
-- Changes that a pull showed first, though push reports their kind: creations, cancellations, and
-- updates of a material field ($material). What only became visible, was withdrawn or restored is
-- left out. Grain: version, newest first, at most $limit. Parameters: known after $since and up to
-- $until, and made from $began on.
-- Run twice: the same rows.
SELECT event_id, change_kinds, feed, changed_at, known_from
FROM (
    SELECT
        event_id, version, change_kinds, feed, known_from,
        coalesce(
            CASE
                WHEN list_contains(change_kinds, 'cancelled') THEN cancelled_at
                WHEN list_contains(change_kinds, 'created') THEN created_at
                ELSE updated_at
            END,
            content_at
        ) AS changed_at
    FROM event_versions
    WHERE known_from > $since AND known_from <= $until
      AND feed <> 'deliveries'
      AND NOT list_has_any(change_kinds, ['revealed', 'withdrawn', 'restored'])
      AND (list_has_any(change_kinds, ['created', 'cancelled'])
           OR list_has_any(changed_fields, $material))
)
WHERE changed_at >= $began
ORDER BY known_from DESC, event_id, version
LIMIT $limit
