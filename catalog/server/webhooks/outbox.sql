-- The outbox of webhooks, a SQLite file: deliveries, endpoints' states, and the watermark of the
-- change feed.
--
--     create_… , set_application_id, set_version      a new file
--     get_watermark → enqueue → set_watermark         in one transaction
--     list_due → mark_delivered | mark_failed | mark_dead → requeue (by a person)

-- name: create_deliveries
-- One row per delivery, kept forever: its id prevents that a change is sent twice.
-- The body is deleted on delivery. Instants are microseconds since 1970, UTC; created_at
-- is on the catalog's clock, next_attempt_at on the wall clock.
-- Run once, in the transaction that makes the file.
CREATE TABLE deliveries (
    id TEXT PRIMARY KEY,
    endpoint_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    body BLOB,
    created_at INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'dead')),
    attempts INTEGER NOT NULL,
    next_attempt_at INTEGER,
    last_status INTEGER,
    last_error TEXT,
    CHECK ((state = 'delivered') = (body IS NULL)),
    CHECK ((state = 'pending') = (next_attempt_at IS NOT NULL))
) STRICT

-- name: create_deliveries_pending
-- Finds what is due to one endpoint without reading delivered rows.
-- Run once, in the transaction that makes the file.
CREATE INDEX deliveries_pending ON deliveries (endpoint_id, next_attempt_at)
WHERE state = 'pending'

-- name: create_deliveries_dead
-- Lists dead letters without reading delivered rows.
-- Run once, in the transaction that makes the file.
CREATE INDEX deliveries_dead ON deliveries (created_at) WHERE state = 'dead'

-- name: create_watermark
-- At most one row: the catalog's instant up to which changes are enqueued.
-- Run once, in the transaction that makes the file.
CREATE TABLE watermark (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    instant INTEGER NOT NULL
) STRICT

-- name: create_subscriptions
-- One row per endpoint: the catalog's instant after which changes are sent to it.
-- Run once, in the transaction that makes the file.
CREATE TABLE subscriptions (
    endpoint_id TEXT PRIMARY KEY,
    since INTEGER NOT NULL
) STRICT

-- name: set_application_id
-- Marks the file as an outbox; the number is APPLICATION_ID of outbox.py. Twice: no change.
PRAGMA application_id = 1097617250

-- name: set_version
-- Marks the form of the tables; the number is VERSION of outbox.py. Twice: no change.
PRAGMA user_version = 1

-- name: get_watermark
-- No row before the first round.
SELECT instant FROM watermark

-- name: enqueue
-- Adds one delivery ($id, $endpoint_id, $kind, $body, $created_at), due at $next_attempt_at.
-- Twice: the first row stays.
INSERT INTO deliveries
    (id, endpoint_id, kind, body, created_at, state, attempts, next_attempt_at)
VALUES
    ($id, $endpoint_id, $kind, $body, $created_at, 'pending', 0, $next_attempt_at)
ON CONFLICT (id) DO NOTHING

-- name: set_watermark
-- Sets the watermark to $instant. Twice: no change.
INSERT INTO watermark (only_row, instant) VALUES (1, $instant)
ON CONFLICT (only_row) DO UPDATE SET instant = excluded.instant

-- name: list_due
-- At most $limit pending deliveries of $endpoint_id that are due at $now, the longest due first.
SELECT
    id, endpoint_id, kind, body, created_at, state, attempts, next_attempt_at, last_status, last_error
FROM deliveries
WHERE state = 'pending' AND endpoint_id = $endpoint_id AND next_attempt_at <= $now
ORDER BY next_attempt_at, rowid
LIMIT $limit

-- name: list_in_order
-- At most $limit pending deliveries of $endpoint_id, due or not, the first enqueued first.
SELECT
    id, endpoint_id, kind, body, created_at, state, attempts, next_attempt_at, last_status, last_error
FROM deliveries
WHERE state = 'pending' AND endpoint_id = $endpoint_id
ORDER BY rowid
LIMIT $limit

-- name: list_waiting_endpoints
-- One row per endpoint that has pending deliveries, due or not.
SELECT DISTINCT endpoint_id FROM deliveries WHERE state = 'pending'

-- name: mark_delivered
-- Records that $id was answered with the 2xx $status, also if it is dead by now.
-- Twice: no change.
UPDATE deliveries
SET
    state = 'delivered', body = NULL, attempts = attempts + 1, next_attempt_at = NULL,
    last_status = $status, last_error = NULL
WHERE id = $id AND state <> 'delivered'

-- name: mark_failed
-- Records a failed attempt of $id; $next_attempt_at NULL makes it a dead letter.
-- Only while it is pending. Twice: two attempts are counted.
UPDATE deliveries
SET
    state = iif($next_attempt_at IS NULL, 'dead', 'pending'),
    attempts = attempts + 1, next_attempt_at = $next_attempt_at,
    last_status = $status, last_error = $error
WHERE id = $id AND state = 'pending'

-- name: mark_dead
-- Makes all pending deliveries of $endpoint_id dead letters, with $error. Twice: no change.
UPDATE deliveries
SET state = 'dead', next_attempt_at = NULL, last_error = $error
WHERE endpoint_id = $endpoint_id AND state = 'pending'

-- name: requeue
-- Makes the dead letter $id due at $now, with no attempts; no row when it is not dead.
-- Twice: no change.
UPDATE deliveries
SET state = 'pending', attempts = 0, next_attempt_at = $now
WHERE id = $id AND state = 'dead'
RETURNING id

-- name: list_pending
-- At most $limit pending deliveries, the next one first.
SELECT
    id, endpoint_id, kind, body, created_at, state, attempts, next_attempt_at, last_status, last_error
FROM deliveries
WHERE state = 'pending'
ORDER BY next_attempt_at, rowid
LIMIT $limit

-- name: list_dead
-- At most $limit dead letters, the oldest change first.
SELECT
    id, endpoint_id, kind, body, created_at, state, attempts, next_attempt_at, last_status, last_error
FROM deliveries
WHERE state = 'dead'
ORDER BY created_at, rowid
LIMIT $limit

-- name: list_subscriptions
-- One row per endpoint that was ever enqueued for.
SELECT endpoint_id, since FROM subscriptions

-- name: set_subscription
-- Sets to $since the instant after which changes are sent to $endpoint_id. Twice: no change.
INSERT INTO subscriptions (endpoint_id, since) VALUES ($endpoint_id, $since)
ON CONFLICT (endpoint_id) DO UPDATE SET since = excluded.since
