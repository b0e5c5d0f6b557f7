-- Grain: one row, how many versions there are. Run twice: the same row.
SELECT count(*) FROM event_versions
