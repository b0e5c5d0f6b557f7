-- Grain: one row per record of an export that came before, as the id of its event.
-- Run twice: the same view again.
CREATE OR REPLACE TEMP VIEW again AS SELECT event_id FROM arrived WHERE is_again
