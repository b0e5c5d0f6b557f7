-- The rows of one look whose ids are all different: nothing to choose. Grain: event.
CREATE OR REPLACE TEMP VIEW wave AS
SELECT * FROM seen WHERE status <> 'not_found';
