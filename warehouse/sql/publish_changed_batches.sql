-- Grain: one row per batch of the days that changed, as published and as they are now.
-- Parameters: $first_day. Run twice: made again.
CREATE OR REPLACE TEMP TABLE changed_batches AS
SELECT batch_id FROM batches WHERE observed_date >= $first_day
UNION
SELECT batch_id FROM want_batches
