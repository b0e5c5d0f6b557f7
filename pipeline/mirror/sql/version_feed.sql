-- The change feed: every version in the order in which this machine saw it published. SQLite.
--
--     days ─▶ changed days ─▶ published ─┬─▶ recorded ─▶ pages
--     publications ◀─────────────────────┘

-- name: make_recorded
-- Grain: one row per version that a publication added. `seq` is its place, without gaps. `nth` is
-- its number among equal versions; `known_from` is in microseconds. `gone` is 1 since a refold
-- removed the version. At each start.
CREATE TABLE IF NOT EXISTS recorded (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    known_from INTEGER NOT NULL,
    content BLOB NOT NULL,
    nth INTEGER NOT NULL,
    gone INTEGER NOT NULL DEFAULT 0
) STRICT

-- name: index_recorded
-- At each start.
CREATE INDEX IF NOT EXISTS recorded_by_known_from ON recorded (known_from) WHERE gone = 0

-- name: index_gone
-- At each start.
CREATE INDEX IF NOT EXISTS recorded_gone ON recorded (seq) WHERE gone = 1

-- name: make_publications
-- Grain: one row per publication that added versions, with the places of the first and the last.
-- `recorded_at` is in microseconds, by the machine's clock, and always increases. At each start.
CREATE TABLE IF NOT EXISTS publications (
    first_seq INTEGER PRIMARY KEY, last_seq INTEGER NOT NULL, recorded_at INTEGER NOT NULL
) STRICT

-- name: make_days
-- Grain: one row per observed day that was compared. At each start.
CREATE TABLE IF NOT EXISTS compared_days (day TEXT PRIMARY KEY, content TEXT NOT NULL) STRICT

-- name: make_position
-- Grain: one row, the publication that was compared last. At each start.
CREATE TABLE IF NOT EXISTS position (
    one INTEGER PRIMARY KEY CHECK (one = 1), published_at TEXT NOT NULL
) STRICT

-- name: make_published
-- Grain: one row per version of the days that are compared. Once per publication.
CREATE TEMP TABLE published (
    known_from INTEGER,
    event_id TEXT,
    content BLOB,
    nth INTEGER,
    version INTEGER,
    PRIMARY KEY (known_from, event_id, content, nth)
) STRICT, WITHOUT ROWID

-- name: add_published
-- Once per version.
INSERT INTO temp.published VALUES (?, ?, ?, ?, ?)

-- name: drop_published
-- Once per publication.
DROP TABLE IF EXISTS temp.published

-- name: get_position
-- Grain: at most one row. Any number of times.
SELECT published_at
FROM position

-- name: set_position
-- Once per publication.
INSERT INTO position VALUES (1, :published_at)
ON CONFLICT (one) DO UPDATE SET published_at = excluded.published_at

-- name: list_days
-- Grain: one row per day. Any number of times.
SELECT day, content
FROM compared_days

-- name: set_day
-- Once per changed day.
INSERT INTO compared_days VALUES (:day, :content)
ON CONFLICT (day) DO UPDATE SET content = excluded.content

-- name: drop_day
-- Once per day that a refold removed.
DELETE FROM compared_days
WHERE day = :day

-- name: update_recorded
-- Once per changed day: versions that a refold numbered anew, or removed.
UPDATE recorded
SET (version, gone) = (
    SELECT coalesce(max(p.version), recorded.version), count(*) = 0
    FROM temp.published AS p
    WHERE p.known_from = recorded.known_from
        AND p.event_id = recorded.event_id
        AND p.content = recorded.content
        AND p.nth = recorded.nth
)
WHERE gone = 0
    AND known_from >= :first
    AND known_from < :end
    AND version IS NOT (
        SELECT p.version
        FROM temp.published AS p
        WHERE p.known_from = recorded.known_from
            AND p.event_id = recorded.event_id
            AND p.content = recorded.content
            AND p.nth = recorded.nth
    )

-- name: drop_recorded
-- Once per changed day: leaves the versions that were never recorded.
DELETE FROM temp.published
WHERE (known_from, event_id, content, nth) IN (
    SELECT known_from, event_id, content, nth
    FROM recorded
    WHERE gone = 0 AND known_from >= :first AND known_from < :end
)

-- name: record_published
-- Once per publication.
INSERT INTO recorded (known_from, event_id, content, nth, version)
SELECT known_from, event_id, content, nth, version
FROM temp.published
ORDER BY known_from, event_id, version

-- name: record
-- Once per version of the first publication.
INSERT INTO recorded (known_from, event_id, content, nth, version) VALUES (?, ?, ?, ?, ?)

-- name: get_last
-- Grain: one row, the last place: 0 in an empty feed. Any number of times.
SELECT coalesce(max(seq), 0)
FROM recorded

-- name: add_publication
-- Once per publication that added versions.
INSERT INTO publications
SELECT :first_seq, :last_seq, max(:now, coalesce(max(recorded_at), 0) + 1)
FROM publications

-- name: get_mark
-- Grain: at most one row, when the version at a place was recorded. Any number of times.
SELECT recorded_at
FROM publications
WHERE first_seq <= :seq AND last_seq >= :seq
ORDER BY first_seq DESC
LIMIT 1

-- name: list_after
-- Grain: one row per version after a place, in order. Any number of times.
-- Up to `head`, only those that became known after `since`.
SELECT
    r.seq,
    r.event_id,
    r.version,
    (
        SELECT p.recorded_at
        FROM publications AS p
        WHERE p.first_seq <= r.seq
        ORDER BY p.first_seq DESC
        LIMIT 1
    )
FROM recorded AS r
WHERE r.seq > :seq
    AND r.gone = 0
    AND (r.seq > :head OR r.known_from > :since)
    AND r.known_from <= :until
ORDER BY r.seq
LIMIT :limit

-- name: count_gone
-- Grain: one row, the number of removed versions after a place. Any number of times.
SELECT count(*)
FROM recorded
WHERE gone = 1 AND seq > :seq

-- name: list_gone
-- Grain: one row per removed version, with its time. Any number of times.
SELECT event_id, known_from
FROM recorded
WHERE gone = 1
ORDER BY event_id, known_from

-- name: count_since
-- Grain: one row, the number of versions after a place, up to `head`, in a range of times, and the
-- place of the first. Any number of times.
SELECT count(*), min(seq)
FROM recorded
WHERE gone = 0 AND known_from > :since AND known_from <= :until AND seq > :seq AND seq <= :head

-- name: list_recorded_between
-- Grain: one row per version that was recorded after a time, until another. Any number of times.
SELECT r.seq, r.event_id, r.version, p.recorded_at
FROM publications AS p
INNER JOIN recorded AS r ON r.seq >= p.first_seq AND r.seq <= p.last_seq
WHERE p.recorded_at > :after AND p.recorded_at <= :until AND p.first_seq > 1 AND r.gone = 0
ORDER BY r.seq

-- name: find_last_recorded_at
-- Grain: one row: the time of the last publication that added versions, 0 without one.
-- Any number of times.
SELECT coalesce(max(recorded_at), 0)
FROM publications
