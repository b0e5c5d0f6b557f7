-- One event with its coins and categories. Grain: one row. Parameter: :id. Reads only.
SELECT * FROM shown_events WHERE id = :id
