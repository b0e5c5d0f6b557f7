-- What happened to the deliveries of the inbox after their receipt, a SQLite file of the lander.
--
--     create_… , set_progress_id, set_progress_version   a new file
--     get_progress → set_range → set_landed               a range of deliveries becomes batches
--     set_failure | set_landed                            of each attempt
--     settle → list_to_replay → mark_replayed            dead letters, settled by a person
--
-- Instants are microseconds since 1970, UTC.

-- name: create_progress
-- One row. Deliveries up to landed_to are landed. Those up to range_to are being landed, all of
-- them or none: after a crash the same range makes the same batches. failures counts the attempts
-- that failed since the last success.
-- Run once, in the transaction that makes the file.
CREATE TABLE progress (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    landed_to INTEGER NOT NULL,
    range_to INTEGER,
    failures INTEGER NOT NULL,
    failed_at INTEGER,
    failure TEXT,
    CHECK (range_to IS NULL OR range_to > landed_to)
) STRICT

-- name: create_settled
-- Grain: dead letter that a person settled; outcome is replayed or dismissed. One that waits to be
-- landed is replayed and has no landed_at.
-- Run once, in the transaction that makes the file.
CREATE TABLE settled (
    seq INTEGER PRIMARY KEY,
    outcome TEXT NOT NULL CHECK (outcome IN ('replayed', 'dismissed')),
    landed_at INTEGER
) STRICT

-- name: create_settled_to_replay
-- Finds the dead letters that wait to be landed without reading the others.
-- Run once, in the transaction that makes the file.
CREATE INDEX settled_to_replay ON settled (seq) WHERE outcome = 'replayed' AND landed_at IS NULL

-- name: insert_progress
-- Run once, in the transaction that makes the file.
INSERT INTO progress (only_row, landed_to, failures) VALUES (1, 0, 0)

-- name: set_progress_id
-- Marks the file; the number is PROGRESS_ID of progress.py. Twice: no change.
PRAGMA application_id = 1097617258

-- name: set_progress_version
-- Marks the form of the tables; the number is VERSION of progress.py. Twice: no change.
PRAGMA user_version = 1

-- name: get_progress
-- The one row, and the number of dead letters that wait to be landed.
SELECT
    landed_to, range_to, failures, failed_at, failure,
    (SELECT count(*) FROM settled WHERE outcome = 'replayed' AND landed_at IS NULL) AS to_replay
FROM progress

-- name: set_range
-- Begins to land the deliveries up to $range_to. Twice: no change.
UPDATE progress SET range_to = $range_to

-- name: set_landed
-- Records that all deliveries up to $landed_to are landed. Twice: no change.
UPDATE progress
SET landed_to = $landed_to, range_to = NULL, failures = 0, failed_at = NULL, failure = NULL

-- name: set_failure
-- Records that an attempt failed at $failed_at. Twice: two failures.
UPDATE progress SET failures = failures + 1, failed_at = $failed_at, failure = $failure

-- name: settle
-- Records what a person decided about the dead letter $seq. Twice: the last decision stays.
INSERT INTO settled (seq, outcome) VALUES ($seq, $outcome)
ON CONFLICT (seq) DO UPDATE SET outcome = excluded.outcome, landed_at = NULL

-- name: list_settled
-- One row per settled dead letter.
SELECT seq, outcome, landed_at FROM settled ORDER BY seq

-- name: list_to_replay
-- Dead letters that wait to be landed, in order of receipt.
SELECT seq FROM settled WHERE outcome = 'replayed' AND landed_at IS NULL ORDER BY seq

-- name: mark_replayed
-- Records that the dead letter $seq was landed at $landed_at. Twice: the first instant stays.
UPDATE settled SET landed_at = $landed_at
WHERE seq = $seq AND outcome = 'replayed' AND landed_at IS NULL
