-- Queries of Dagster's own SQLite databases of a home, without Dagster. All only read.

-- name: list_tables
-- One row per table of a database: its name.
SELECT name FROM sqlite_master WHERE type = 'table'

-- name: list_revisions
-- One row per schema revision recorded in a database of Dagster; a complete one has one.
SELECT version_num FROM alembic_version

-- name: check_integrity
-- One row with `ok`, or one per fault: every page of the database is read.
PRAGMA integrity_check(1)

-- name: list_heartbeats
-- One row per daemon that ever ran here: its type and when it last reported (text, UTC).
SELECT daemon_type, timestamp FROM daemon_heartbeats ORDER BY daemon_type
