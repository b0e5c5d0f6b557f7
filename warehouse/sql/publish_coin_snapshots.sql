-- Grain: one row per coin and day on which it was looked at.
-- Parameters: $snapshots, the files of the days. Run twice: the same rows.
SELECT
    observed_date, slug, rank, tracked, upcoming_count, major_count, peak_impact, observed_at,
    batch_id
FROM read_parquet($snapshots, hive_partitioning = true, hive_types = {'observed_date': DATE})
