-- Unchanged records of an export: the state accepted them before, and they are not read again.
--
--     nothing_unchanged → has_accepted_records → find_unchanged_of_body | find_unchanged_rows → view_unchanged → count_arrived

-- name: nothing_unchanged
-- Grain: one row per unchanged record: none at the beginning of a batch.
-- Run twice: the same view.
CREATE OR REPLACE TEMP VIEW unchanged AS SELECT NULL::VARCHAR AS event_id WHERE false

-- name: has_accepted_records
-- Grain: one row: whether the state has any accepted record that can be unchanged.
-- Reads only.
SELECT EXISTS (SELECT 1 FROM event_seen WHERE row_md5 IS NOT NULL)

-- name: find_unchanged_of_body
-- Grain: one row per record of the previous export, whose bytes are the same. `is_unchanged` if the
-- state last accepted this record.
-- Run twice: the same.
CREATE OR REPLACE TEMP TABLE arrived AS
SELECT a.event_id, a.row_md5, s.event_id IS NOT NULL AS is_unchanged
FROM arrived AS a
LEFT JOIN event_seen AS s ON s.event_id = a.event_id AND s.row_md5 = a.row_md5

-- name: find_unchanged_rows
-- Grain: one row per record of a CSV file, into `arrived`, in any order: `is_unchanged` if the state
-- last accepted exactly this record (its md5 includes the id); else with its cells.
-- csv_reader.py replaces the braces with expressions.
-- Placeholders: id, cells, rows.
-- Parameters: as csv_rows. Run twice: the same.
CREATE OR REPLACE TEMP TABLE arrived AS
SELECT
    almanac_clean({id}) AS event_id,
    row_md5,
    is_unchanged,
    {cells}
FROM (
    SELECT
        *,
        row_md5 IN (SELECT s.row_md5 FROM event_seen AS s WHERE s.row_md5 IS NOT NULL) AS is_unchanged
    {rows}
)

-- name: view_unchanged
-- Grain: one row per unchanged record of an export, as the id of its event.
-- Run twice: the same view.
CREATE OR REPLACE TEMP VIEW unchanged AS SELECT event_id FROM arrived WHERE is_unchanged

-- name: count_arrived
-- Grain: one row: records, ids among them, different ids, unchanged records. Reads only.
SELECT count(*), count(event_id), count(DISTINCT event_id), count(*) FILTER (is_unchanged)
FROM arrived
