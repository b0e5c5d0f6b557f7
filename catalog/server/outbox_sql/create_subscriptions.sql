-- One row per endpoint: the catalog's instant after which changes are sent to it.
-- Run once, in the transaction that makes the file.
CREATE TABLE subscriptions (
    endpoint_id TEXT PRIMARY KEY,
    since INTEGER NOT NULL
) STRICT
