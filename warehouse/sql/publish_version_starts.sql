-- Grain: one row per version, with the instant it became known.
-- Parameters: $changes, the files of the change log. Run twice: made again.
CREATE OR REPLACE TEMP TABLE version_starts AS
SELECT event_id, version, known_from
FROM read_parquet($changes, hive_partitioning = false)
