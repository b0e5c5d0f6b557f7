-- The statement of an assistant, in the process that runs it.

-- name: read_answer
-- Grain: as the relation `answer`, the rows of the statement with timestamps as ISO 8601.
-- Parameters: none. Run twice: the same rows.
FROM answer

-- name: read_publication
-- Grain: one row per fact of the publication: its identifier, and the time when it was made, as
-- text. Parameters: none. Run twice: the same rows.
SELECT name, value FROM _almanac.facts WHERE name IN ('publication', 'published_at')

-- name: read_last_pull
-- Grain: one row, the time of the last merged pull; NULL if there was none.
-- Parameters: none. Run twice: the same row.
SELECT max(observed_at) AS last_pull_at FROM batches WHERE status = 'merged'
