-- The outbox of webhooks, a SQLite file. Times are microseconds since 1970, UTC.

-- name: create_deliveries
-- One row for each delivery that was not accepted yet; a dead letter has no next attempt.
CREATE TABLE IF NOT EXISTS deliveries (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    endpoint_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    body BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    next_attempt_at INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    last_status INTEGER,
    last_error TEXT
) STRICT

-- name: create_deliveries_due
CREATE INDEX IF NOT EXISTS deliveries_due ON deliveries (endpoint_id, next_attempt_at)

-- name: create_places
-- One row for each endpoint that gets push: how far it was sent the feed.
CREATE TABLE IF NOT EXISTS places (
    endpoint_id TEXT PRIMARY KEY,
    feed_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    known_from INTEGER NOT NULL
) STRICT

-- name: list_places
SELECT endpoint_id, feed_id, seq, known_from FROM places

-- name: set_place
REPLACE INTO places VALUES (?, ?, ?, ?)

-- name: delete_place
DELETE FROM places WHERE endpoint_id = $endpoint_id

-- name: enqueue
INSERT INTO deliveries (id, endpoint_id, kind, body, created_at, next_attempt_at)
VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING

-- name: count_deliveries
SELECT endpoint_id, iif(next_attempt_at IS NULL, 'dead', 'waiting') AS state, count(*)
FROM deliveries
GROUP BY endpoint_id, state

-- name: list_due
SELECT * FROM deliveries WHERE endpoint_id = $endpoint_id AND next_attempt_at <= $now
ORDER BY next_attempt_at, n LIMIT $limit

-- name: list_deliveries
SELECT * FROM deliveries WHERE (next_attempt_at IS NULL) = $dead
ORDER BY next_attempt_at, created_at, n LIMIT $limit

-- name: mark_delivered
DELETE FROM deliveries WHERE id = $id

-- name: mark_failed
UPDATE deliveries
SET attempts = attempts + 1, next_attempt_at = $due, last_status = $status, last_error = $error
WHERE id = $id AND next_attempt_at IS NOT NULL

-- name: mark_dead
UPDATE deliveries SET next_attempt_at = NULL, last_error = $error
WHERE endpoint_id = $endpoint_id AND next_attempt_at IS NOT NULL

-- name: requeue
UPDATE deliveries SET attempts = 0, next_attempt_at = $now
WHERE id = $id AND next_attempt_at IS NULL
RETURNING id
