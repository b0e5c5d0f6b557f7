-- Grain: one fact.
-- Parameters: $name. Run twice: changes nothing.
DELETE FROM _almanac_facts WHERE name = $name
