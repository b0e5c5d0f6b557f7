-- name: macro_coin_lookup
-- Grain: one row per coin that a text names, the best match first: its slug, its symbol or name in
-- any case, then what only begins with the text; the highest rank first among equals.
-- Parameters: wanted, the text. Run twice: fails; it is made once in a new file.
CREATE MACRO coin_lookup(wanted) AS TABLE
SELECT coin, symbol, name, rank, tracked, matched_by
FROM (
    SELECT
        slug AS coin, symbol, name, rank, tracked,
        CASE
            WHEN slug = trim(wanted) THEN 'slug'
            WHEN lower(symbol) = lower(trim(wanted)) THEN 'symbol'
            WHEN lower(name) = lower(trim(wanted)) THEN 'name'
            WHEN starts_with(lower(slug), lower(trim(wanted)))
                OR starts_with(lower(symbol), lower(trim(wanted)))
                OR starts_with(lower(name), lower(trim(wanted))) THEN 'prefix'
        END AS matched_by
    FROM coins
    WHERE trim(wanted) <> ''
)
WHERE matched_by IS NOT NULL
ORDER BY list_position(['slug', 'symbol', 'name', 'prefix'], matched_by), rank NULLS LAST, coin
