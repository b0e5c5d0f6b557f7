-- The coins whose name or symbol contains a text, best rank first.
-- Grain: one row a coin, with the total. Parameters: :q (lower case), :limit. Reads only.
SELECT
    slug, symbol, name, rank, tracked, icon_url, upcoming_count, major_count, peak_impact,
    (SELECT count(*) FROM coins WHERE instr(search_text, :q)) AS total
FROM coins
WHERE instr(search_text, :q)
ORDER BY place
LIMIT :limit
