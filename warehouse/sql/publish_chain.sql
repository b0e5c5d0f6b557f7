-- Grain: one row per day of the change log that was published, oldest first.
-- Parameters: none. Run twice: the same rows.
SELECT day, sha256 FROM _almanac_published ORDER BY day
