-- The versions of events, as read from the Iceberg tables. DuckDB and Spark run the same statements.
--
--     read_versions | read_valid_versions

-- name: read_versions
-- Grain: one row per version, with its end, which the next version of the event begins.
-- Parameters: none; the view `rows` has the stored versions. Run twice: the same rows.
SELECT
    *,
    min(known_from) OVER (PARTITION BY event_id) AS first_seen_at,
    lead(known_from) OVER (PARTITION BY event_id ORDER BY version) AS known_to
FROM rows

-- name: read_valid_versions
-- Grain: one row per event, its newest version in `rows`, which has no later ones than those known.
-- Parameters: none; the view `rows` has the stored versions. Run twice: the same rows.
SELECT
    *,
    min(known_from) OVER (PARTITION BY event_id) AS first_seen_at,
    -- NULL, in the type that each engine has for known_from.
    nullif(known_from, known_from) AS known_to
FROM rows
QUALIFY version = max(version) OVER (PARTITION BY event_id)
