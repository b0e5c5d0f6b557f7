-- How many of the absent are withdrawn. Grain: one row.
SELECT count(*) FROM absent WHERE is_second;
