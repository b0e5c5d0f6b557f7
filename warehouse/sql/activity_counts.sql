-- What a day's look at the other feeds has to page through, and since when anything was watched.
-- Grain: one row. Parameters: $since, as far back as cancellations are listed.
SELECT
    (SELECT count(*) FROM coins WHERE missing_since IS NULL) AS coins,
    (SELECT count(*) FROM cancellations WHERE cancelled_at >= $since) AS cancellations,
    (SELECT first_at FROM _almanac_first_look) AS first_look;
