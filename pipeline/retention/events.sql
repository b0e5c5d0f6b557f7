-- The events and check results of Dagster's event log, in SQLite and PostgreSQL.
-- Lists `runs`, `ids`, `kinds` are bound as lists. An event is the latest of its partition if no
-- other of its asset, kind and partition has a higher id.

-- name: list_spent_events
-- One row per event of some runs that may go: its id. Those that stay are the latest of their
-- partition, of the kinds to keep. Only reads.
SELECT old.id
FROM event_logs AS old
WHERE old.run_id IN :runs
  AND NOT (
    old.asset_key IS NOT NULL AND old.dagster_event_type IN :kinds
    AND old.id = CASE WHEN old."partition" IS NULL THEN (
        SELECT MAX(other.id) FROM event_logs AS other
        WHERE other.asset_key = old.asset_key
          AND other.dagster_event_type = old.dagster_event_type AND other."partition" IS NULL)
      ELSE (
        SELECT MAX(other.id) FROM event_logs AS other
        WHERE other.asset_key = old.asset_key
          AND other.dagster_event_type = old.dagster_event_type
          AND other."partition" = old."partition") END)

-- name: list_superseded_events
-- One row per old event of an asset `asset` from before an instant `before` that may go if its
-- run is gone: id and run. What stays is as in list_spent_events. Only reads.
SELECT old.id, old.run_id
FROM event_logs AS old
WHERE old.asset_key = :asset AND old."timestamp" < :before
  AND NOT (
    old.dagster_event_type IN :kinds
    AND old.id = CASE WHEN old."partition" IS NULL THEN (
        SELECT MAX(other.id) FROM event_logs AS other
        WHERE other.asset_key = old.asset_key
          AND other.dagster_event_type = old.dagster_event_type AND other."partition" IS NULL)
      ELSE (
        SELECT MAX(other.id) FROM event_logs AS other
        WHERE other.asset_key = old.asset_key
          AND other.dagster_event_type = old.dagster_event_type
          AND other."partition" = old."partition") END)

-- name: delete_event_tags
-- Deletes the tags of events. Run twice: nothing more.
DELETE FROM asset_event_tags WHERE event_id IN :ids

-- name: delete_events
-- Deletes events. Run twice: nothing more.
DELETE FROM event_logs WHERE id IN :ids

-- name: list_spent_checks
-- One row per check execution of some runs that may go: its id. Those that stay are the latest
-- evaluated one of each asset, check and partition. Only reads.
SELECT old.id
FROM asset_check_executions AS old
WHERE old.run_id IN :runs
  AND (
    old.execution_status = 'PLANNED'
    OR old.id < CASE WHEN old."partition" IS NULL THEN (
        SELECT MAX(other.id) FROM asset_check_executions AS other
        WHERE other.asset_key = old.asset_key AND other.check_name = old.check_name
          AND other.execution_status <> 'PLANNED' AND other."partition" IS NULL)
      ELSE (
        SELECT MAX(other.id) FROM asset_check_executions AS other
        WHERE other.asset_key = old.asset_key AND other.check_name = old.check_name
          AND other.execution_status <> 'PLANNED' AND other."partition" = old."partition") END)

-- name: list_superseded_checks
-- One row per old check execution of an asset `asset` from before an instant `before` that may go
-- if its run is gone: id, run and its event. What stays is as in list_spent_checks. Only reads.
SELECT old.id, old.run_id, old.evaluation_event_storage_id
FROM asset_check_executions AS old
WHERE old.asset_key = :asset AND old.evaluation_event_timestamp < :before
  AND (
    old.execution_status = 'PLANNED'
    OR old.id < CASE WHEN old."partition" IS NULL THEN (
        SELECT MAX(other.id) FROM asset_check_executions AS other
        WHERE other.asset_key = old.asset_key AND other.check_name = old.check_name
          AND other.execution_status <> 'PLANNED' AND other."partition" IS NULL)
      ELSE (
        SELECT MAX(other.id) FROM asset_check_executions AS other
        WHERE other.asset_key = old.asset_key AND other.check_name = old.check_name
          AND other.execution_status <> 'PLANNED' AND other."partition" = old."partition") END)

-- name: delete_checks
-- Deletes check executions. Run twice: nothing more.
DELETE FROM asset_check_executions WHERE id IN :ids

-- name: find_newest_event
-- At most one row: the run of the newest event. Only reads.
SELECT run_id FROM event_logs ORDER BY id DESC LIMIT 1

-- name: delete_runless_events
-- Deletes the old events of an asset `asset` without a run from the database that SQLite keeps for
-- events without a run; the index keeps the latest. Run twice: nothing more.
DELETE FROM event_logs WHERE run_id = '' AND asset_key = :asset AND "timestamp" < :before

-- name: delete_runless_results
-- Deletes the old results of checks without a run, which name no asset, from that database. Run
-- twice: nothing more.
DELETE FROM event_logs WHERE run_id = '' AND asset_key IS NULL AND "timestamp" < :before
