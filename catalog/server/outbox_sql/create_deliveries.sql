-- One row per delivery, for good: its id is what keeps a change from being sent twice.
-- The body goes when it is delivered. Instants are microseconds since 1970, UTC; created_at
-- is on the catalog's clock, next_attempt_at on the wall's.
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
