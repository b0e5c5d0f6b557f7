-- Grain: one row per batch of the days that changed, as published and as they are now.
-- Parameters: none. Run twice: made again.
CREATE OR REPLACE TEMP TABLE changed_batches AS
SELECT batch_id FROM have_batches
UNION
SELECT batch_id FROM want_batches
