-- Grain: one row per readable row of the list of categories.
-- Run twice: empty again.
CREATE OR REPLACE TEMP TABLE seen_categories (
    position BIGINT,
    id VARCHAR,
    name VARCHAR,
    extra VARCHAR
)
