-- Questions of the health to the published file. They only read.

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

-- name: list_tracked_coins
-- Those of some slugs ($slugs) that the published list of coins has as tracked. Grain: coin.
-- Run twice: the same rows.
SELECT slug
FROM coins
WHERE list_contains($slugs, slug) AND tracked AND missing_since IS NULL
