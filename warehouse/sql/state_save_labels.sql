-- The rows a checkpoint keeps, in a fixed order. Grain: slug.
SELECT * FROM labels ORDER BY slug;
