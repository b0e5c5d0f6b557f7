-- The change feed: every version in the order in which this machine saw it published. SQLite.
--
--     days ─▶ which days of the change log to compare ─▶ recorded ─▶ pages

-- name: make_recorded
-- Grain: one row per version that was recorded. `seq` is its place; `recorded_at` is in microseconds, by the
-- machine's clock. `gone` is 1 if a refold removed the version. At each start.
CREATE TABLE IF NOT EXISTS recorded (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    known_from INTEGER NOT NULL,
    content BLOB NOT NULL,
    recorded_at INTEGER NOT NULL,
    gone INTEGER NOT NULL DEFAULT 0
) STRICT

-- name: index_recorded
-- At each start.
CREATE INDEX IF NOT EXISTS recorded_by_known_from ON recorded (known_from)

-- name: index_recorded_at
-- At each start.
CREATE INDEX IF NOT EXISTS recorded_by_recorded_at ON recorded (recorded_at)

-- name: make_days
-- Grain: one row per day of the change log that was compared. At each start.
CREATE TABLE IF NOT EXISTS days (day TEXT PRIMARY KEY, sha256 TEXT NOT NULL) STRICT

-- name: make_position
-- Grain: one row, the publication that was compared last. At each start.
CREATE TABLE IF NOT EXISTS position (
    one INTEGER PRIMARY KEY CHECK (one = 1), published_at TEXT NOT NULL
) STRICT

-- name: get_position
-- Grain: at most one row. Any number of times.
SELECT published_at FROM position

-- name: set_position
-- Once per publication.
INSERT INTO position VALUES (1, :published_at)
ON CONFLICT (one) DO UPDATE SET published_at = excluded.published_at

-- name: list_days
-- Grain: one row per day. Any number of times.
SELECT day, sha256 FROM days

-- name: set_day
-- Once per changed day.
INSERT INTO days VALUES (:day, :sha256) ON CONFLICT (day) DO UPDATE SET sha256 = excluded.sha256

-- name: drop_day
-- Once per day that a refold removed.
DELETE FROM days WHERE day = :day

-- name: list_recorded
-- Grain: one row per version that became known in a range. Any number of times.
SELECT seq, event_id, version, known_from, content, gone
FROM recorded
WHERE known_from >= :first AND known_from < :end

-- name: record
-- Once per new version.
INSERT INTO recorded (event_id, version, known_from, content, recorded_at)
VALUES (:event_id, :version, :known_from, :content, :recorded_at)

-- name: update_recorded
-- Once per version that a refold numbered anew, removed or restored.
UPDATE recorded SET version = :version, gone = :gone WHERE seq = :seq

-- name: list_after
-- Grain: one row per version after a place, in order. Any number of times.
SELECT seq, event_id, version
FROM recorded
WHERE seq > :seq AND gone = 0 AND known_from > :since AND known_from <= :until
ORDER BY seq
LIMIT :limit

-- name: count_after
-- Grain: one row. Any number of times.
SELECT count(*)
FROM recorded
WHERE seq > :seq AND gone = 0 AND known_from > :since AND known_from <= :until

-- name: list_recorded_between
-- Grain: one row per version that was recorded after a time, until another. Any number of times.
SELECT seq, event_id, version, recorded_at
FROM recorded
WHERE recorded_at > :after AND recorded_at <= :until AND gone = 0
ORDER BY seq
