-- Grain: one row per record of a CSV file, into `arrived`, in any order: `is_again` where the state
-- last accepted just this record, of which the md5 has the id in it; else with its cells.
-- In place of the braces stand expressions that csv_reader.py gives.
-- Parameters: as normalise_csv_rows.sql. Run twice: the same.
CREATE OR REPLACE TEMP TABLE arrived AS
SELECT
    almanac_clean({id}) AS event_id,
    row_md5,
    is_again,
    {cells}
FROM (
    SELECT
        *,
        row_md5 IN (SELECT s.row_md5 FROM sight AS s WHERE s.row_md5 IS NOT NULL) AS is_again
    {rows}
)
