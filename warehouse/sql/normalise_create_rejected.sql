-- Grain: one row per row that could not be read, at its place in the batch.
-- Run twice: empty again.
CREATE OR REPLACE TEMP TABLE rejected (
    batch_id VARCHAR,
    position BIGINT,
    reason VARCHAR,
    raw VARCHAR
)
