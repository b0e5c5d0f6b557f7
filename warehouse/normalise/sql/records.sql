-- The records of an export as texts: those that are unchanged, and the new ones, which are read.
--
--     create_unchanged → read_lines → (odd lines: join_lines → count_irregular) → take_unchanged
--     → count_records → list_new_records → take_new_records within insert_events → count_read
--
-- A record is unchanged if the state last accepted the same text for its event, read in the same way.
-- Then the record is complete, whatever is before and behind it. New records are certain if the reader
-- finds one in each line, or if they are regular.

-- name: create_unchanged
-- Grain: one row per unchanged record: its event, and the row of it in `current_versions`. None at the
-- beginning of a batch. Run twice: empty again.
CREATE OR REPLACE TEMP TABLE unchanged (event_id VARCHAR, current_row BIGINT)

-- name: list_accepted
-- Grain: one row per event, with the digest of the record that was last accepted. Reads only.
SELECT rowid AS current_row, event_id, row_hash FROM current_versions

-- name: list_none_accepted
-- Grain: no row: all records are new. Reads only.
SELECT NULL::BIGINT AS current_row, NULL::VARCHAR AS event_id, NULL::UBIGINT AS row_hash LIMIT 0

-- name: read_lines
-- Grain: one row per line behind the header, with its text unless it is an unchanged record.
-- No character but a line end is special. Mixed line ends and U+0001 are an error; with `skip`, mixed
-- line ends would lose lines.
-- Placeholders: accepted.
-- Parameters: $path, $compression, $skip (lines up to the header and with it), $reading (how records
-- are read: columns, plan, separator).
-- Run twice: the same.
CREATE OR REPLACE TEMP TABLE records AS
SELECT place - $skip AS place, digest, quotes, event_id, current_row, if(current_row IS NULL, line, NULL) AS text
FROM (
    SELECT
        row_number() OVER () - 1 AS place,
        coalesce(line, '') AS line,
        hash(line) AS digest,
        strlen(line) - strlen(replace(line, '"', '')) AS quotes
    FROM read_csv(
        $path,
        columns = {'line': 'VARCHAR'},
        compression = $compression,
        header = false,
        delim = chr(1),
        quote = '',
        escape = '',
        auto_detect = false,
        strict_mode = true,
        -- With a larger buffer one thread reads a file of some MB.
        buffer_size = 2097152
    )
)
LEFT JOIN ({accepted}) ON row_hash = hash(digest, $reading::VARCHAR)
WHERE place >= $skip

-- name: count_odd_lines
-- Grain: one row: lines that are blank, have a NUL, or in which a quote stays open or ends. Reads only.
SELECT count(*) FROM records WHERE text = '' OR contains(text, chr(0)) OR quotes % 2 = 1

-- name: join_lines
-- Grain: one row per record, from the lines in `records`. A quote joins lines; other blank lines are
-- left out. A new record has no text if one of its lines has none.
-- Placeholders: accepted. Parameters: $reading. Run once for a batch.
CREATE OR REPLACE TEMP TABLE records AS
WITH quoted AS (
    SELECT *, sum(quotes) OVER before % 2 IS DISTINCT FROM 1 AS begins
    FROM records
    WINDOW before AS (ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
-- A sum over a filter is slow in a window.
numbered AS MATERIALIZED (
    SELECT
        digest,
        text,
        sum(begins::INTEGER) OVER to_here - 1 AS record,
        place - max(if(begins, place, NULL)) OVER to_here AS line
    FROM quoted
    WHERE NOT begins OR text IS DISTINCT FROM ''
    WINDOW to_here AS (ORDER BY place ROWS UNBOUNDED PRECEDING)
),
joined AS (
    SELECT
        record AS place,
        if(count(*) = 1, any_value(digest), bit_xor(hash(digest, line))) AS digest,
        count(*) = count(text) AS has_text
    FROM numbered
    GROUP BY record
),
matched AS (
    SELECT joined.*, event_id, current_row
    FROM joined
    LEFT JOIN ({accepted}) ON row_hash = hash(digest, $reading::VARCHAR)
),
texts AS (
    SELECT record AS place, string_agg(text, chr(10) ORDER BY line) AS text
    FROM numbered
    WHERE record IN (SELECT place FROM matched WHERE current_row IS NULL AND has_text)
    GROUP BY record
)
SELECT place, digest, event_id, current_row, text
FROM matched
LEFT JOIN texts USING (place)

-- name: count_irregular
-- Grain: one row: new records without a text in the form $regular. Reads only.
SELECT count(*)
FROM records
WHERE current_row IS NULL AND NOT coalesce(regexp_full_match(text, $regular), false)

-- name: take_unchanged
-- Grain: one row per unchanged record, into `unchanged`. Run twice: every row is there twice.
INSERT INTO unchanged SELECT event_id, current_row FROM records WHERE current_row IS NOT NULL

-- name: count_records
-- Grain: one row: records, and unchanged ones. Reads only.
SELECT count(*), count(current_row) FROM records

-- name: list_doubtful_records
-- Grain: one row per new record with a line within it that may be a record of $fields cells. Reads only.
-- Parameters: $delimiter, $fields.
SELECT text
FROM records
WHERE current_row IS NULL AND len(list_filter(
    string_split(text, chr(10))[2:],
    lambda line: len(string_split(line, $delimiter::VARCHAR)) >= $fields
)) > 0

-- name: list_new_records
-- Grain: one row per new record, in the order of the file. Reads only.
SELECT text FROM records WHERE current_row IS NULL ORDER BY place

-- name: take_new_records
-- Grain: one row per new record, with its cells. A row without a cell is left out: it is an empty row, as
-- spreadsheets save, or a record that the reader did not see. Reads only.
-- Placeholders: rows (csv_rows, of the new records only), cells.
SELECT place, digest, cells.*
FROM (SELECT place, digest FROM records WHERE current_row IS NULL ORDER BY place)
POSITIONAL JOIN ({rows}) AS cells
WHERE coalesce({cells}) IS NOT NULL

-- name: count_read
-- Grain: one row: records read, and records that are unchanged or new beside an unchanged one of their
-- event. Reads only.
SELECT
    count(*),
    count(*) FILTER (event_id IN (SELECT event_id FROM unchanged))
    + (SELECT count(*) - count(DISTINCT current_row) FROM unchanged)
FROM normalised
