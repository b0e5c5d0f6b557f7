-- Grain: one row: categories read, and the ids among them. Reads only.
SELECT count(*), count(DISTINCT id) FROM seen_categories
