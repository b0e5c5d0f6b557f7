-- Grain: one row per readable row of a list of coins.
-- Run twice: empty again.
CREATE OR REPLACE TEMP TABLE seen_coins (
    position BIGINT,
    slug VARCHAR,
    symbol VARCHAR,
    name VARCHAR,
    rank INTEGER,
    tracked BOOLEAN,
    icon_url VARCHAR,
    upcoming_count INTEGER,
    major_count INTEGER,
    peak_impact DOUBLE,
    extra VARCHAR
)
