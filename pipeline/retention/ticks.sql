-- Ticks of schedules and sensors, and backfills, in SQLite and PostgreSQL.

-- name: count_old_ticks
-- One row: the ticks of an instigator `selector` from before an instant `before`. Only reads.
SELECT COUNT(*) FROM job_ticks WHERE selector_id = :selector AND "timestamp" < :before

-- name: delete_backfill
-- Deletes the record of a backfill `backfill`. Run twice: nothing more.
DELETE FROM bulk_actions WHERE key = :backfill

-- name: delete_backfill_tags
-- Deletes the tags of a backfill `backfill`. Run twice: nothing more.
DELETE FROM backfill_tags WHERE backfill_id = :backfill
