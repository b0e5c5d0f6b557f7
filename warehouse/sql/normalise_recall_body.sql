-- Grain: one row per record of the export before, whose bytes came again. `is_again` where it is
-- still as the state last accepted it.
-- Run twice: the same.
CREATE OR REPLACE TEMP TABLE arrived AS
SELECT a.event_id, a.row_md5, s.event_id IS NOT NULL AS is_again
FROM arrived AS a
LEFT JOIN sight AS s ON s.event_id = a.event_id AND s.row_md5 = a.row_md5
