-- The rows a checkpoint keeps, in a fixed order. Grain: id.
SELECT * FROM categories_state ORDER BY id;
