-- Grain: one row per record of a CSV file, into `arrived`, in the order of the file: `is_again`
-- where the state last accepted just this record of its event; else with its cells.
-- In place of the braces stand expressions that csv_reader.py gives.
-- Parameters: as normalise_csv_rows.sql. Run twice: the same.
CREATE OR REPLACE TEMP TABLE arrived AS
SELECT
    almanac_clean(r.{id}) AS event_id,
    r.row_md5,
    s.event_id IS NOT NULL AS is_again,
    {cells}
FROM (SELECT * {rows}) AS r
LEFT JOIN sight AS s ON s.event_id = r.{id} AND s.row_md5 = r.row_md5
