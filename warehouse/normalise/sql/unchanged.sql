-- Records of an export that came before, as they are now: they are not read again.
--
--     nothing_unchanged → has_accepted_records → find_unchanged_of_body | find_unchanged_rows → view_unchanged → count_arrived

-- name: nothing_unchanged
-- Grain: one row per record that came before: none, as every batch begins.
-- Run twice: the same view again.
CREATE OR REPLACE TEMP VIEW unchanged AS SELECT NULL::VARCHAR AS event_id WHERE false

-- name: has_accepted_records
-- Grain: one row: whether the state accepted any record of an export that can come again.
-- Reads only.
SELECT EXISTS (SELECT 1 FROM event_seen WHERE row_md5 IS NOT NULL)

-- name: find_unchanged_of_body
-- Grain: one row per record of the export before, whose bytes are the same. `is_unchanged` where it
-- is still as the state last accepted it.
-- Run twice: the same.
CREATE OR REPLACE TEMP TABLE arrived AS
SELECT a.event_id, a.row_md5, s.event_id IS NOT NULL AS is_unchanged
FROM arrived AS a
LEFT JOIN event_seen AS s ON s.event_id = a.event_id AND s.row_md5 = a.row_md5

-- name: find_unchanged_rows
-- Grain: one row per record of a CSV file, into `arrived`, in any order: `is_unchanged` where the state
-- last accepted just this record, of which the md5 has the id in it; else with its cells.
-- In place of the braces stand expressions that csv_reader.py gives.
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
-- Grain: one row per record of an export that came before, as the id of its event.
-- Run twice: the same view again.
CREATE OR REPLACE TEMP VIEW unchanged AS SELECT event_id FROM arrived WHERE is_unchanged

-- name: count_arrived
-- Grain: one row: records, ids among them, different ids, records that came before. Reads only.
SELECT count(*), count(event_id), count(DISTINCT event_id), count(*) FILTER (is_unchanged)
FROM arrived
