-- The rows a checkpoint keeps, in a fixed order. Grain: slug.
SELECT * FROM coins_state ORDER BY slug;
