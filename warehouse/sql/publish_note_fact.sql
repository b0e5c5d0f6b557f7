-- Grain: one fact, in place of the one of that name.
-- Parameters: $name, $value. Run twice: twice there; publish_forget_fact comes before.
INSERT INTO _almanac_facts VALUES ($name, $value)
