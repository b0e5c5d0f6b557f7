-- Grain: one row per element of $rows, a JSON array as json_lists.py makes it.
-- Run twice: every row is there twice.
INSERT INTO seen_categories BY NAME
SELECT one.*
FROM (
    SELECT from_json(element, '{
        "position": "BIGINT", "id": "VARCHAR", "name": "VARCHAR", "extra": "VARCHAR"
    }') AS one
    FROM (SELECT unnest(from_json($rows, '["JSON"]')) AS element)
)
