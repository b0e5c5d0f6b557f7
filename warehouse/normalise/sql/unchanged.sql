-- Unchanged records of an export: the state last accepted the same texts, and they are not read again.
--
--     create_unchanged → find_unchanged → find_new_records → count_unchanged

-- name: create_unchanged
-- Grain: one row per unchanged record: its event, the row of it in `current_versions`, its place
-- in the file. None at the beginning of a batch.
-- Run twice: empty again.
CREATE OR REPLACE TEMP TABLE unchanged (event_id VARCHAR, current_row BIGINT, place BIGINT)

-- name: find_unchanged
-- Grain: one row per unchanged record of an export, into `unchanged`. The relation `arrived` has all
-- records: id, digest, place. Of an event with several records none is unchanged: their content
-- decides which is used.
-- Parameters: $reading (how records are read: columns, plan, separator).
-- Run twice: every row is there twice.
INSERT INTO unchanged
SELECT event_id, current_versions.rowid, place
FROM current_versions
JOIN (
    SELECT
        almanac_clean(id) AS event_id, any_value(digest) AS digest, any_value(place) AS place
    FROM arrived
    GROUP BY almanac_clean(id)
    HAVING count(*) = 1
) USING (event_id)
WHERE try_cast(row_md5 AS UBIGINT) = hash(digest, $reading::VARCHAR)

-- name: find_new_records
-- Grain: one row per record of `arrived` that is not unchanged; `copy` numbers those that are the
-- same. Run twice: the same.
CREATE OR REPLACE TEMP TABLE new_records AS
SELECT place, digest, row_number() OVER (PARTITION BY digest) AS copy
FROM arrived
ANTI JOIN unchanged USING (place)

-- name: count_unchanged
-- Grain: one row: unchanged records. Reads only.
SELECT count(*) FROM unchanged

-- name: hash_lines
-- Grain: one row per record of `arrived` (place, line), with the hash of its bytes.
-- Run twice: the same.
CREATE OR REPLACE TEMP TABLE arrived_lines AS
SELECT place, hash(line) AS digest FROM arrived

-- name: find_unchanged_lines
-- Grain: one row per unchanged record of an export, into `unchanged`: its line occurs once.
-- Parameters: $reading (how records are read: columns, plan, separator).
-- Run twice: every row is there twice.
INSERT INTO unchanged
SELECT any_value(event_id), any_value(c.rowid), any_value(place)
FROM arrived_lines AS a
JOIN current_versions AS c ON try_cast(c.row_md5 AS UBIGINT) = hash(a.digest, $reading::VARCHAR)
GROUP BY digest
HAVING count(*) = 1

-- name: list_new_lines
-- Grain: one row per record that is not unchanged, in the order of the file. Reads only.
SELECT place, digest FROM arrived_lines ANTI JOIN unchanged USING (place) ORDER BY place

-- name: forget_repeated
-- Remove the unchanged records of events that also have a record in `new_cells`.
-- Placeholders: id.
DELETE FROM unchanged
WHERE event_id IN (SELECT almanac_clean({id}) FROM new_cells)
