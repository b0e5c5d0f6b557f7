-- The end of each version, from the start of the next one.
--
--     in full    clear_version_starts → find_version_starts → find_version_spans
--     a delta    clear_version_spans → (rows are compared) → find_touched_starts
--                → and if an event was touched: find_version_spans → update_version_spans

-- name: clear_version_starts
-- Grain: no row. An empty lake has no versions.
-- Parameters: none. Run twice: empty again.
CREATE OR REPLACE TEMP TABLE version_starts (
    event_id VARCHAR, version INTEGER, known_from TIMESTAMPTZ, place BIGINT
)

-- name: find_version_starts
-- Grain: one row per version, with the instant it became known.
-- Parameters: $changes, the files of the change log. Run twice: made again.
CREATE OR REPLACE TEMP TABLE version_starts AS
SELECT event_id, version, known_from, NULL::BIGINT AS place
FROM read_parquet($changes, hive_partitioning = false)

-- name: clear_version_spans
-- Grain: no row. Versions are compared without their ends, which are updated afterwards.
-- Parameters: none. Run twice: empty again.
CREATE OR REPLACE TEMP TABLE version_spans (
    event_id VARCHAR, version INTEGER, known_to TIMESTAMPTZ, first_seen_at TIMESTAMPTZ
)

-- name: find_touched_starts
-- Grain: one row per version of the touched events, with its place in the table.
-- Parameters: none. Run twice: made again.
CREATE OR REPLACE TEMP TABLE version_starts AS
SELECT event_id, version, known_from, rowid AS place
FROM event_versions
WHERE event_id IN (SELECT event_id FROM touched)

-- name: find_version_spans
-- Grain: one row per version whose event has several: its end, and when the event was first observed.
-- Parameters: none. Run twice: made again.
CREATE OR REPLACE TEMP TABLE version_spans AS
SELECT
    event_id,
    version,
    lead(known_from) OVER of_event AS known_to,
    min(known_from) OVER (PARTITION BY event_id) AS first_seen_at
FROM version_starts
WHERE event_id IN (SELECT event_id FROM version_starts WHERE version <> 1)
WINDOW of_event AS (PARTITION BY event_id ORDER BY version)

-- name: update_version_spans
-- Grain: one row per version of the events that were touched: its end.
-- Parameters: none. Run twice: changes nothing.
UPDATE event_versions SET known_to = s.known_to, first_seen_at = s.first_seen_at
FROM (
    SELECT
        t.place, p.known_to, coalesce(p.first_seen_at, t.known_from) AS first_seen_at
    FROM version_starts AS t
    LEFT JOIN version_spans AS p ON p.event_id = t.event_id AND p.version = t.version
) AS s
WHERE event_versions.rowid = s.place
    AND (
        event_versions.known_to IS DISTINCT FROM s.known_to
        OR event_versions.first_seen_at IS DISTINCT FROM s.first_seen_at
    )
