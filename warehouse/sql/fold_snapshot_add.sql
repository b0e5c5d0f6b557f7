-- The coins of the day as this look shows them. Grain: slug. Once per look.
INSERT INTO snapshot
SELECT slug, rank, tracked, upcoming_count, major_count, peak_impact, $observed_at, $batch_id
FROM seen_coins
QUALIFY row_number() OVER (PARTITION BY slug ORDER BY position DESC) = 1;
