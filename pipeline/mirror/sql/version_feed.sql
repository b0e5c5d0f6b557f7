-- The change feed: every version in the order in which this machine saw it published. SQLite.
--
--     days ─▶ which days of the change log to compare ─▶ told ─▶ pages

-- name: make_told
-- Grain: one row per version that was told. `seq` is its place; `told_at` is in microseconds, by the
-- machine's clock. `gone` is 1 if a refold removed the version. At each start.
CREATE TABLE IF NOT EXISTS told (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    known_from INTEGER NOT NULL,
    content BLOB NOT NULL,
    told_at INTEGER NOT NULL,
    gone INTEGER NOT NULL DEFAULT 0
) STRICT

-- name: index_told
-- At each start.
CREATE INDEX IF NOT EXISTS told_by_known_from ON told (known_from)

-- name: index_told_at
-- At each start.
CREATE INDEX IF NOT EXISTS told_by_told_at ON told (told_at)

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

-- name: list_told
-- Grain: one row per version that became known in a range. Any number of times.
SELECT seq, event_id, version, known_from, content, gone
FROM told
WHERE known_from >= :first AND known_from < :end

-- name: tell
-- Once per new version.
INSERT INTO told (event_id, version, known_from, content, told_at)
VALUES (:event_id, :version, :known_from, :content, :told_at)

-- name: update_told
-- Once per version that a refold numbered anew, removed or restored.
UPDATE told SET version = :version, gone = :gone WHERE seq = :seq

-- name: list_after
-- Grain: one row per version after a place, in order. Any number of times.
SELECT seq, event_id, version
FROM told
WHERE seq > :seq AND gone = 0 AND known_from > :since AND known_from <= :until
ORDER BY seq
LIMIT :limit

-- name: count_after
-- Grain: one row. Any number of times.
SELECT count(*)
FROM told
WHERE seq > :seq AND gone = 0 AND known_from > :since AND known_from <= :until

-- name: list_told_between
-- Grain: one row per version that was told after a time, until another. Any number of times.
SELECT seq, event_id, version, told_at
FROM told
WHERE told_at > :after AND told_at <= :until AND gone = 0
ORDER BY seq
