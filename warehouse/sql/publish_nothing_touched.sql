-- Grain: no row. When everything is made anew, everything is checked, whatever was touched.
-- Parameters: none. Run twice: empty again.
CREATE OR REPLACE TEMP TABLE touched (event_id VARCHAR)
