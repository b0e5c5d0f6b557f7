-- The publication that a file has.

-- name: publication_id
-- Grain: one row, the id of the publication; NULL if the file has none.
-- Parameters: none. Run twice: the same row.
SELECT any_value(value) FILTER (name = 'publication') AS id FROM _almanac.facts
