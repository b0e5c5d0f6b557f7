-- Grain: one row, how many versions end before they begin. Run twice: the same row.
SELECT count(*) FROM event_versions WHERE known_to < known_from
