-- name: create_allowance
-- The one row of a ledger (SQLite). Times in nanoseconds are those of `boot`.
CREATE TABLE IF NOT EXISTS allowance (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    boot TEXT,
    tokens REAL,
    at_ns INTEGER,
    held_until_ns INTEGER,
    export_at_ns INTEGER,
    allowed INTEGER,
    used INTEGER,
    own INTEGER,
    resets_at INTEGER,
    rate_per_s REAL,
    burst INTEGER
);

-- name: create_months
-- The counts of other months: a clock that ran ahead comes back to its month.
CREATE TABLE IF NOT EXISTS months (resets_at INTEGER PRIMARY KEY, used INTEGER, own INTEGER);

-- name: read_months
SELECT resets_at, used, own FROM months;

-- name: forget_months
DELETE FROM months;

-- name: write_month
INSERT INTO months VALUES (?, ?, ?);

-- name: read_allowance
SELECT boot, tokens, at_ns, held_until_ns, export_at_ns, allowed, used, own, resets_at,
    rate_per_s, burst
FROM allowance;

-- name: write_allowance
INSERT OR REPLACE INTO allowance VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
