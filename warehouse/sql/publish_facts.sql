-- Grain: one row per fact.
-- Parameters: none. Run twice: the same rows.
SELECT name, value FROM _almanac_facts
