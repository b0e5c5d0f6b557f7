-- Grain: one row per coin and day on which it was looked at.
-- Parameters: $snapshots, the files of the days. Run twice: the same rows.
-- The day is in the name of the folder; what the folders above are named says nothing.
SELECT
    regexp_extract(filename, 'observed_date=([0-9-]+)/[^/]+$', 1)::DATE AS observed_date,
    slug, rank, tracked, upcoming_count, major_count, peak_impact, observed_at,
    batch_id
FROM read_parquet($snapshots, hive_partitioning = false, filename = true)
