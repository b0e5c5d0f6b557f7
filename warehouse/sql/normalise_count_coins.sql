-- Grain: one row: coins read, and the slugs among them. Reads only.
SELECT count(*), count(DISTINCT slug) FROM seen_coins
