-- The name of each known category. Grain: id.
SELECT id, name FROM categories_state;
