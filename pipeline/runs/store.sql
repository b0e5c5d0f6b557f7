-- Dagster's own databases of a home (SQLite), read without Dagster.

-- name: list_tables
-- One row per table of a SQLite database: its name. Reads alone.
SELECT name FROM sqlite_master WHERE type = 'table'

-- name: list_revisions
-- One row per revision of the schema that a database of Dagster says it has; a whole one says one.
SELECT version_num FROM alembic_version

-- name: check_integrity
-- One row with `ok`, or one per fault: every page of a SQLite database is read. Reads alone.
PRAGMA integrity_check(1)

-- name: list_runs_in_progress
-- One row per run of Dagster that began and has not ended, by its own records: id, job, status and
-- when it last changed (text, UTC). Reads alone; runs that are queued have not begun.
SELECT run_id, pipeline_name, status, update_timestamp
FROM runs
WHERE status IN ('NOT_STARTED', 'STARTING', 'STARTED', 'CANCELING')
ORDER BY id
