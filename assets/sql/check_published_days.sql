-- Grain: one row per day of the change log that the file was made from. Run twice: the same rows.
SELECT day, sha256, versions FROM _almanac_published ORDER BY day
