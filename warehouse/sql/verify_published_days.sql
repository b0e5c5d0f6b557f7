-- The days of the change log as they were published. Grain: one row per day.
SELECT day, sha256 FROM published.main._almanac_published;
