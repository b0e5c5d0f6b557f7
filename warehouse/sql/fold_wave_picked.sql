-- The rows of one look that were chosen among several of an event. Grain: event.
CREATE OR REPLACE TEMP VIEW wave AS
SELECT * FROM picked;
