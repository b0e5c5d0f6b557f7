-- Queries of Dagster's own databases of a home (SQLite), without Dagster.

-- name: list_tables
-- One row per table of a SQLite database: its name. Only reads.
SELECT name FROM sqlite_master WHERE type = 'table'

-- name: list_revisions
-- One row per schema revision recorded in a database of Dagster; a complete one has one.
SELECT version_num FROM alembic_version

-- name: check_integrity
-- One row with `ok`, or one per fault: every page of a SQLite database is read. Only reads.
PRAGMA integrity_check(1)

-- name: list_runs_in_progress
-- One row per run of Dagster that has started and not ended: id, job, status, time of the last
-- change (text, UTC), and repository@location, NULL for a run in a process of its own. Only reads;
-- queued runs have not started.
SELECT runs.run_id, pipeline_name, status, update_timestamp, repository.value
FROM runs
LEFT JOIN run_tags AS repository
    ON repository.run_id = runs.run_id AND +repository.key = :repository
WHERE status IN ('NOT_STARTED', 'STARTING', 'STARTED', 'CANCELING')
ORDER BY runs.id
