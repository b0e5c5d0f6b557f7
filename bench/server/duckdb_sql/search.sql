-- The coins whose name or symbol contains a text, best rank first. Grain: one row a coin.
-- Parameters: $q (lower case), $limit. Reads only.
SELECT * EXCLUDE (place, search_text), count(*) OVER () AS total
FROM coins
WHERE contains(search_text, $q)
ORDER BY place
LIMIT $limit
