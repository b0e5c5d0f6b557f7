-- The rows a checkpoint keeps, in a fixed order. Grain: event_id.
SELECT * FROM cancelled ORDER BY event_id;
