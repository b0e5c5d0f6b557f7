-- The inbox of webhook deliveries, a SQLite file. The receiver alone writes it.
--
--     create_… , set_inbox_id, set_inbox_version     a new file
--     get_received → add                              of each delivery of a group, one transaction
--     count_refusals                                  some seconds after deliveries were refused
--     clear_bodies → checkpoint                       by and by, once they are landed; when idle
--     empty_log                                       before another file is opened in its place
--
-- Instants are microseconds since 1970, UTC, on the service's clock. All others read:
-- get_last_seq (sensors), list_sizes → list_pending, list_by_seq (the lander), get_…receipt… and
-- list_receipts (warnings), the others (people).

-- name: create_deliveries
-- Grain: one row per accepted delivery, in order of receipt. A row is kept forever, since its id
-- and hash prevent that it is applied twice; its body is cleared some time after it was landed.
-- trouble is why it can't be landed without a person: NULL for almost all.
-- Run once, in the transaction that makes the file.
CREATE TABLE deliveries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    delivery_id TEXT NOT NULL,
    body_sha256 BLOB NOT NULL,
    received_at INTEGER NOT NULL,
    kind TEXT,
    event_id TEXT,
    bytes INTEGER NOT NULL,
    trouble TEXT,
    body BLOB
) STRICT

-- name: create_deliveries_by_id
-- Finds a delivery by its id; one that came again with another body has a row of its own.
-- Run once, in the transaction that makes the file.
CREATE UNIQUE INDEX deliveries_by_id ON deliveries (delivery_id, body_sha256)

-- name: create_deliveries_in_trouble
-- Lists dead letters without reading the others.
-- Run once, in the transaction that makes the file.
CREATE INDEX deliveries_in_trouble ON deliveries (seq) WHERE trouble IS NOT NULL

-- name: create_deliveries_with_body
-- Finds the oldest bodies to clear.
-- Run once, in the transaction that makes the file.
CREATE INDEX deliveries_with_body ON deliveries (received_at) WHERE body IS NOT NULL

-- name: create_deliveries_by_event
-- Finds what was pushed about an event.
-- Run once, in the transaction that makes the file.
CREATE INDEX deliveries_by_event ON deliveries (event_id, received_at)

-- name: create_refusals
-- Grain: reason. Requests that were refused, of which nothing else is stored.
-- Run once, in the transaction that makes the file.
CREATE TABLE refusals (
    reason TEXT PRIMARY KEY,
    requests INTEGER NOT NULL,
    last_at INTEGER NOT NULL
) STRICT

-- name: set_inbox_id
-- Marks the file as an inbox; the number is INBOX_ID of inbox_file.py. Twice: no change.
PRAGMA application_id = 1097617257

-- name: set_inbox_version
-- Marks the form of the tables; the number is VERSION of inbox_file.py. Twice: no change.
PRAGMA user_version = 1

-- name: get_received
-- The hashes of the bodies that came with $delivery_id, the first one first.
SELECT body_sha256 FROM deliveries WHERE delivery_id = $delivery_id ORDER BY seq

-- name: add
-- Adds one delivery. Twice: the first row stays.
INSERT INTO deliveries
    (delivery_id, body_sha256, received_at, kind, event_id, bytes, trouble, body)
VALUES
    ($delivery_id, $body_sha256, $received_at, $kind, $event_id, $bytes, $trouble, $body)
ON CONFLICT (delivery_id, body_sha256) DO NOTHING

-- name: count_refusals
-- Adds $requests that were refused for $reason, the last of them at $last_at. Twice: counted twice.
INSERT INTO refusals (reason, requests, last_at) VALUES ($reason, $requests, $last_at)
ON CONFLICT (reason) DO UPDATE
SET requests = requests + excluded.requests, last_at = max(last_at, excluded.last_at)

-- name: clear_bodies
-- Clears at most $limit bodies of landed deliveries (up to $landed_to) that were received before
-- $before; dead letters keep theirs. Twice: no change.
UPDATE deliveries SET body = NULL
WHERE seq IN (
    SELECT seq FROM deliveries
    WHERE body IS NOT NULL AND received_at < $before AND seq <= $landed_to AND trouble IS NULL
    ORDER BY received_at
    LIMIT $limit
)

-- name: checkpoint
-- Moves what is in the log of the file into the file, as far as no reader needs it, and waits for
-- nobody; the next commit then begins the log anew. Twice: no change.
PRAGMA wal_checkpoint(PASSIVE)

-- name: empty_log
-- Moves all of the log into the file and cuts it to nothing; the first column is 1 if a reader was
-- in the way. Twice: no change.
PRAGMA wal_checkpoint(TRUNCATE)

-- name: get_last_seq
-- The newest delivery alone: its seq and its receipt. No row in an empty inbox.
SELECT seq, received_at FROM deliveries ORDER BY seq DESC LIMIT 1

-- name: get_first_receipt
-- When the first delivery after $after was received. No row if there is none.
SELECT received_at FROM deliveries WHERE seq > $after ORDER BY seq LIMIT 1

-- name: get_last_receipt_of_event
-- When the newest delivery of $event_id was received; NULL if there is none.
SELECT max(received_at) FROM deliveries WHERE event_id = $event_id

-- name: list_receipts
-- When each delivery was received, the newest first. The reader ends it after some days of them.
SELECT received_at FROM deliveries ORDER BY seq DESC

-- name: list_sizes
-- The sizes of at most $limit deliveries after $after, in order of receipt.
SELECT seq, bytes FROM deliveries WHERE seq > $after ORDER BY seq LIMIT $limit

-- name: list_pending
-- The deliveries after $after up to $to that can be landed, in order of receipt.
SELECT seq, delivery_id, received_at, kind, event_id, bytes, body_sha256, trouble, body
FROM deliveries
WHERE seq > $after AND seq <= $to AND trouble IS NULL AND body IS NOT NULL
ORDER BY seq

-- name: list_by_seq
-- The delivery $seq.
SELECT seq, delivery_id, received_at, kind, event_id, bytes, body_sha256, trouble, body
FROM deliveries
WHERE seq = $seq

-- name: list_by_id
-- The deliveries with the id $delivery_id, in order of receipt.
SELECT seq, delivery_id, received_at, kind, event_id, bytes, body_sha256, trouble, body
FROM deliveries
WHERE delivery_id = $delivery_id
ORDER BY seq

-- name: list_newest
-- The newest $limit deliveries, the newest first, without bodies.
SELECT seq, delivery_id, received_at, kind, event_id, bytes, body_sha256, trouble, NULL AS body
FROM deliveries
ORDER BY seq DESC
LIMIT $limit

-- name: list_in_trouble
-- The newest $limit deliveries in trouble, the newest first, without bodies.
SELECT seq, delivery_id, received_at, kind, event_id, bytes, body_sha256, trouble, NULL AS body
FROM deliveries
WHERE trouble IS NOT NULL
ORDER BY seq DESC
LIMIT $limit

-- name: list_of_unknown_kinds
-- The newest $limit deliveries whose kind is not in the JSON list $known, the newest first, without
-- bodies. They have no event id, so the index of events finds them without reading the others.
SELECT seq, delivery_id, received_at, kind, event_id, bytes, body_sha256, trouble, NULL AS body
FROM deliveries
WHERE event_id IS NULL AND trouble IS NULL
  AND kind NOT IN (SELECT value FROM json_each($known))
ORDER BY received_at DESC, seq DESC
LIMIT $limit

-- name: count_in_trouble
-- How many deliveries are in trouble, settled ones too. Reads an index that has no others.
SELECT count(*) FROM deliveries WHERE trouble IS NOT NULL

-- name: sum_old_bodies
-- The number and bytes of what clear_bodies clears with the same $before and $landed_to.
SELECT count(*), coalesce(sum(bytes), 0) FROM deliveries
WHERE body IS NOT NULL AND received_at < $before AND seq <= $landed_to AND trouble IS NULL

-- name: list_refusals
-- One row per reason, the most frequent first.
SELECT reason, requests, last_at FROM refusals ORDER BY requests DESC, reason
