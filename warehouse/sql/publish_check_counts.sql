-- Grain: one row, with how many events and versions there are, and how many there should be.
-- Parameters: $events, the checkpoint's file. Run twice: the same row.
SELECT
    (SELECT count(*) FROM events),
    (SELECT num_rows FROM parquet_file_metadata($events)),
    (SELECT count(*) FROM event_versions),
    (SELECT coalesce(sum(versions), 0) FROM _almanac_published)
