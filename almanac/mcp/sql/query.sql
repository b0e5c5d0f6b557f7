-- Statements of the tools of an assistant; the first two are of the process that runs its SQL.

-- name: read_answer
-- Grain: as the relation `answer`, the rows of the statement with timestamps as ISO 8601.
-- Parameters: none. Run twice: the same rows.
FROM answer

-- name: read_publication
-- Grain: one row per fact of the publication: its identifier, and the time when it was made, as
-- text. Parameters: none. Run twice: the same rows.
SELECT name, value FROM _almanac.facts WHERE name IN ('publication', 'published_at')

-- name: known_history
-- Grain: one row per version of the event $event_id that was known at $at, oldest first, as it was
-- known then: its end is NULL if it became known later.
-- Parameters: $event_id, $at. Run twice: the same rows.
SELECT * EXCLUDE (published_seq) REPLACE (if(known_to <= $at::TIMESTAMPTZ, known_to, NULL) AS known_to)
FROM event_versions
WHERE event_id = $event_id AND known_from <= $at::TIMESTAMPTZ
ORDER BY version
