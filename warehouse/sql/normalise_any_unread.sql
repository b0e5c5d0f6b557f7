-- Grain: one row: whether a row can't be read.
SELECT bool_or(reason IS NOT NULL) FROM normalised
