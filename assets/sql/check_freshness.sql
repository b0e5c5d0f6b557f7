-- Grain: one row, when a complete look at events was last merged; NULL for never.
-- Run twice: the same row.
SELECT max(observed_at) FROM coverage WHERE feed IN ('export', 'events')
