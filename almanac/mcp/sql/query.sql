-- The statement of an assistant, in the process that runs it.

-- name: read_answer
-- Grain: as the relation `answer`, the rows of the statement with timestamps as ISO 8601.
-- Parameters: none. Run twice: the same rows.
FROM answer

-- name: read_publication
-- Grain: one row per fact of the publication: its identifier, and the time when it was made, as
-- text. Parameters: none. Run twice: the same rows.
SELECT name, value FROM _almanac.facts WHERE name IN ('publication', 'published_at')

-- name: find_rank
-- Grain: one row, the rank of a coin in the last complete pull by $at; NULL if there is none.
-- Parameters: $coin, a slug; $at. Run twice: the same row.
SELECT max(rank) AS rank
FROM _almanac.coins_at($at::TIMESTAMPTZ)
WHERE coin = $coin
