-- The rows of one observation, one for each event, and how each compares with the state.
--
--     normalised rows ─ pick_newest_rows ─────────────────┬ take_picked_rows ┐
--                     ├ number_deliveries → pick_deliveries ┘                  ├ classify_rows
--                     └ take_all_rows (all ids differ) ────────────────────────┘ → count_verdicts
-- `versions.sql` continues with the verdicts: new, differs, same, unchanged, stale.
--
-- Aliases: w rows of the observation (`incoming`), c `current_versions`.

-- name: pick_newest_rows
-- The rows of one observation, one row per event. Grain: event.
-- Of rows with the same id in one answer, the newest content is used, then the last to arrive.
CREATE OR REPLACE TEMP TABLE deduplicated AS
SELECT * EXCLUDE (place)
FROM (
    SELECT *, row_number() OVER (
        PARTITION BY event_id
        ORDER BY content_at DESC, believed(updated_at, observed_at) DESC NULLS LAST, position DESC
    ) AS place
    FROM seen
)
WHERE place = 1 AND status <> 'not_found';

-- name: number_deliveries
-- The deliveries at $positions, each with its place among those of its event. Grain: delivery.
-- Once per observation; another time replaces it.
CREATE OR REPLACE TEMP TABLE numbered_deliveries AS
SELECT *, row_number() OVER (
    PARTITION BY event_id ORDER BY observed_at, content_at, position
) AS place
FROM seen
WHERE position IN (SELECT unnest($positions::BIGINT[]));

-- name: count_places
-- The most deliveries of one event in the observation; 0 without any.
SELECT coalesce(max(place), 0) FROM numbered_deliveries;

-- name: pick_deliveries
-- The $place-th delivery of each event. Grain: event.
CREATE OR REPLACE TEMP TABLE deduplicated AS
SELECT * EXCLUDE (place) FROM numbered_deliveries WHERE place = $place;

-- name: take_picked_rows
-- The rows of one observation that were chosen among several of an event. Grain: event.
CREATE OR REPLACE TEMP VIEW incoming AS
SELECT * FROM deduplicated;

-- name: take_all_rows
-- The rows of one observation whose ids are all different: no choice is needed. Grain: event.
CREATE OR REPLACE TEMP VIEW incoming AS
SELECT * FROM seen WHERE status <> 'not_found';

-- name: classify_rows
-- Compare each row of an observation with the state. Grain: event. Run twice: the same.
-- Stale: its content is older than the known content, by either clock; it is only counted.
-- A cancellation is compared with the last row: the absence that proved a withdrawal may be newer than
-- the cancellation that explains it.
-- Unchanged: the same export record as last accepted, and nothing accepted since.
-- `is_found`: the row ends an absence. One that is not newer than the absence shows an earlier state.
-- A cancellation explains the absence, also if it is older. `current_row`: the row of `current_versions`.
-- `is_band`: the row shows a band of the impact without the score.
-- Parameters: $content_at of the observation; the bits $impact_bit and $impact_band_bit.
CREATE OR REPLACE TEMP TABLE classified AS
SELECT
    w.event_id,
    CASE
        WHEN c.event_id IS NULL THEN if(w.shown = 0, 'unknown', 'new')
        WHEN w.content_at < if(w.status = 'cancelled', c.shown_at, c.content_at) THEN 'stale'
        WHEN believed(w.updated_at, w.observed_at) < believed(c.updated_at, c.accepted_at)
            THEN 'stale'
        WHEN w.content_hash = c.content_hash THEN 'same'
        ELSE 'differs'
    END AS verdict,
    c.absent_at IS NULL OR w.content_at > c.absent_at OR w.status = 'cancelled' AS is_found,
    c.missing_since IS NOT NULL AS is_missing, c.rowid AS current_row,
    has(w.shown, $impact_band_bit) AND NOT has(w.shown, $impact_bit) AS is_band
FROM incoming AS w
LEFT JOIN current_versions AS c USING (event_id)
UNION ALL
SELECT
    c.event_id, if($content_at < c.content_at, 'stale', 'unchanged'),
    c.absent_at IS NULL OR $content_at > c.absent_at,
    c.missing_since IS NOT NULL, c.rowid, false
FROM current_versions AS c
WHERE c.rowid IN (SELECT current_row FROM unchanged);

-- name: count_verdicts
-- How many rows of an observation have each verdict, whether some of them end an absence, and
-- whether some show a band without a score. Grain: verdict.
SELECT verdict, count(*), bool_or(is_missing AND is_found), bool_or(is_band)
FROM classified GROUP BY verdict;
