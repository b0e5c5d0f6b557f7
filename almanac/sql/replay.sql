-- Versions in order of knowledge. The end of a version and its place in the feed are left
-- out: they became known later.
--
--     event_versions ─┬─▶ catalog_at (the state at the start)
--                     └─▶ changes_between ─▶ one batch after another

-- name: catalog_at
-- Grain: one row per event known at $at, as its newest version then.
-- Parameters: $at. Run twice: the same rows.
SELECT * EXCLUDE (known_to, known_basis, published_seq)
FROM event_versions
WHERE known_from <= $at::TIMESTAMPTZ AND (known_to > $at::TIMESTAMPTZ OR known_to IS NULL)

-- name: changes_between
-- Grain: one row per version that became known after $after, until $until, and lies behind the key of
-- $known_from, $event_id and $version; in order of knowledge, at most $most rows.
-- Parameters: as named; a key that is NULL is the start. Run twice: the same rows.
SELECT * EXCLUDE (known_to, known_basis, published_seq)
FROM event_versions
WHERE known_from > $after::TIMESTAMPTZ
    AND known_from <= $until::TIMESTAMPTZ
    AND (
        $known_from IS NULL
        OR (known_from, event_id, version)
            > ($known_from::TIMESTAMPTZ, $event_id::VARCHAR, $version::INTEGER)
    )
ORDER BY known_from, event_id, version
LIMIT $most

-- name: keys_between
-- Grain: one row per version that became known after $after, until $until, in order of knowledge.
-- Parameters: as named. Run twice: the same rows.
SELECT event_id, version, known_from
FROM event_versions
WHERE known_from > $after::TIMESTAMPTZ AND known_from <= $until::TIMESTAMPTZ
ORDER BY known_from, event_id, version
