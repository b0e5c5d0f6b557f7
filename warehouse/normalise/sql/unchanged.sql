-- Unchanged records of an export: the state accepted them before, and they are not read again.
--
--     nothing_unchanged → join_accepted → (export_records.py compares digests)
--     → keep_absent_records → view_unchanged → count_unchanged_and_new | count_unchanged

-- name: nothing_unchanged
-- Grain: one row per unchanged record: none at the beginning of a batch.
-- Run twice: the same view.
CREATE OR REPLACE TEMP VIEW unchanged AS
SELECT NULL::VARCHAR AS event_id, NULL::BIGINT AS seen_row WHERE false

-- name: join_accepted
-- Grain: one row: the digests of all records that the state last accepted, as one text, in any
-- order. Reads only.
SELECT string_agg(row_md5, '') FROM event_seen

-- name: keep_absent_records
-- Grain: one row per accepted record that the export does not have.
-- Parameters: $absent.
-- Run twice: the same.
CREATE OR REPLACE TEMP TABLE absent_records AS SELECT unnest($absent::VARCHAR[]) AS row_md5

-- name: view_unchanged
-- Grain: one row per unchanged record of an export, as the row of its event in `event_seen`.
-- Run twice: the same view.
CREATE OR REPLACE TEMP VIEW unchanged AS
SELECT event_id, event_seen.rowid AS seen_row
FROM event_seen
ANTI JOIN absent_records USING (row_md5)
WHERE row_md5 IS NOT NULL

-- name: count_unchanged_and_new
-- Grain: one row: events with an unchanged record and a new one in the same export. Reads only.
SELECT count(*) FROM unchanged SEMI JOIN normalised USING (event_id)

-- name: count_unchanged
-- Grain: one row: unchanged records. Reads only.
SELECT count(*) FROM unchanged
