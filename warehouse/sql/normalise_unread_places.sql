-- Where in the file the rows stand that can't be read: `arrived`, of which they are, has no order.
-- Rows that are the same to the letter get their places in turn.
-- In place of the braces stands the end of a SELECT that csv_reader.py gives.
-- Parameters: as normalise_csv_rows.sql. Run twice: the same.
UPDATE normalised SET place = found.place
FROM (
    SELECT unread.unread_row, numbered.place
    FROM (
        SELECT
            rowid AS unread_row, row_md5,
            row_number() OVER (PARTITION BY row_md5 ORDER BY rowid) AS turn
        FROM normalised
        WHERE reason IS NOT NULL
    ) AS unread
    JOIN (
        SELECT row_md5, place, row_number() OVER (PARTITION BY row_md5 ORDER BY place) AS turn
        FROM (SELECT row_md5, row_number() OVER () - 1 AS place {rows})
        WHERE row_md5 IN (SELECT n.row_md5 FROM normalised AS n WHERE n.reason IS NOT NULL)
    ) AS numbered USING (row_md5, turn)
) AS found
WHERE normalised.rowid = found.unread_row
