-- Grain: one row per element of $rows, a JSON array as json_lists.py makes it.
-- Run twice: every row is there twice.
INSERT INTO seen_coins BY NAME
SELECT one.*
FROM (
    SELECT from_json(element, '{
        "position": "BIGINT",
        "slug": "VARCHAR",
        "symbol": "VARCHAR",
        "name": "VARCHAR",
        "rank": "INTEGER",
        "tracked": "BOOLEAN",
        "icon_url": "VARCHAR",
        "upcoming_count": "INTEGER",
        "major_count": "INTEGER",
        "peak_impact": "DOUBLE",
        "extra": "VARCHAR"
    }') AS one
    FROM (SELECT unnest(from_json($rows, '["JSON"]')) AS element)
)
