-- One row per run of Dagster that began and has not ended, by its own records: id, job, status and
-- when it last changed (text, UTC). Reads alone; runs that are queued have not begun.
SELECT run_id, pipeline_name, status, update_timestamp
FROM runs
WHERE status IN ('NOT_STARTED', 'STARTING', 'STARTED', 'CANCELING')
ORDER BY id
