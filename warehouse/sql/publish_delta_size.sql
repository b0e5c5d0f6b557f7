-- Grain: one row: versions in the days that changed, and versions published.
-- Parameters: none. Run twice: the same row.
SELECT
    (SELECT coalesce(sum(versions), 0) FROM want__almanac_published),
    (SELECT count(*) FROM event_versions)
