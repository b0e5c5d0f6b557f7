-- Questions to Dagster's databases about what failed or hangs (SQLite), without Dagster. All only
-- read. Instants are text in UTC without a zone, as Dagster stores them. The `+` before a key keeps
-- SQLite from reading all tags with it: the tags of a run are few, those with a key many.

-- name: list_failed_runs
-- Grain: one row per failed run that ended since $since, oldest first: its number, id, job, partition
-- or first and last day of a range, backfill, when it ended, and repository@location. Run twice: the
-- same rows.
SELECT
  run.id, run.run_id, run.pipeline_name,
  COALESCE(run.partition, first.value), last.value, run.backfill_id, run.update_timestamp,
  repository.value
FROM runs AS run
LEFT JOIN run_tags AS repository
  ON repository.run_id = run.run_id AND +repository.key = '.dagster/repository'
LEFT JOIN run_tags AS first
  ON first.run_id = run.run_id AND +first.key = 'dagster/asset_partition_range_start'
LEFT JOIN run_tags AS last
  ON last.run_id = run.run_id AND +last.key = 'dagster/asset_partition_range_end'
WHERE run.status = 'FAILURE' AND run.update_timestamp >= $since
ORDER BY run.id

-- name: list_successes_after
-- Grain: one row per successful run with a higher number than $number, oldest first; the columns of
-- list_failed_runs. Run twice: the same rows.
SELECT
  run.id, run.run_id, run.pipeline_name,
  COALESCE(run.partition, first.value), last.value, run.backfill_id, run.update_timestamp,
  repository.value
FROM runs AS run
LEFT JOIN run_tags AS repository
  ON repository.run_id = run.run_id AND +repository.key = '.dagster/repository'
LEFT JOIN run_tags AS first
  ON first.run_id = run.run_id AND +first.key = 'dagster/asset_partition_range_start'
LEFT JOIN run_tags AS last
  ON last.run_id = run.run_id AND +last.key = 'dagster/asset_partition_range_end'
WHERE run.status = 'SUCCESS' AND run.id > $number
ORDER BY run.id

-- name: list_failures
-- In the database of one run. Grain: one row per failed step and one for the failed run, in their
-- order: the event as JSON. Run twice: the same rows.
SELECT event
FROM event_logs
WHERE dagster_event_type IN ('STEP_FAILURE', 'PIPELINE_FAILURE')
ORDER BY dagster_event_type DESC, id
LIMIT 2

-- name: list_long_runs
-- Grain: one row per run that was created before $before and has not ended, oldest first: its id,
-- job, status, when it was created, and repository@location. Run twice: the same rows.
SELECT run.run_id, run.pipeline_name, run.status, run.create_timestamp, repository.value
FROM runs AS run
LEFT JOIN run_tags AS repository
  ON repository.run_id = run.run_id AND +repository.key = '.dagster/repository'
WHERE run.status IN ('QUEUED', 'NOT_STARTED', 'STARTING', 'STARTED', 'CANCELING')
  AND run.create_timestamp < $before
ORDER BY run.id

-- name: list_heartbeats
-- Grain: one row per daemon that ever ran here: its type and when it last reported. Run twice:
-- the same rows.
SELECT daemon_type, timestamp FROM daemon_heartbeats ORDER BY daemon_type

-- name: list_unfinished_backfills
-- Grain: one row per backfill of Dagster that has not ended, oldest first: its id, its assets or
-- job as JSON, when it was requested and when its newest run last changed (NULL without a run). Run
-- twice: the same rows.
SELECT action.key, action.body, action.timestamp, MAX(run.update_timestamp)
FROM bulk_actions AS action
LEFT JOIN runs AS run ON run.backfill_id = action.key
WHERE action.status IN ('REQUESTED', 'CANCELING', 'FAILING')
GROUP BY action.id
ORDER BY action.id

-- name: list_instigators
-- Grain: one row per schedule or sensor that is not switched off: its selector id. Run twice: the
-- same rows.
SELECT selector_id FROM instigators WHERE status <> 'STOPPED' ORDER BY selector_id

-- name: list_newest_ticks
-- Grain: one row per ended tick of the schedule or sensor $selector since $since, newest first, at
-- most $ticks: its status, time and record as JSON. Run twice: the same rows.
SELECT status, timestamp, tick_body
FROM job_ticks
WHERE selector_id = $selector AND timestamp >= $since AND status <> 'STARTED'
ORDER BY timestamp DESC
LIMIT $ticks
