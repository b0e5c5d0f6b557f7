-- Questions of the health to the published file. They only read.

-- name: list_tracked_coins
-- Those of some slugs ($slugs) that the published list of coins has as tracked. Grain: coin.
-- Run twice: the same rows.
SELECT slug
FROM coins
WHERE list_contains($slugs, slug) AND tracked AND missing_since IS NULL
