-- The mirror's change feed as the doctor reads it. SQLite.

-- name: find_recorded_publication
-- Grain: at most one row, the publication whose changes were recorded last. Once per check.
SELECT published_at
FROM position
