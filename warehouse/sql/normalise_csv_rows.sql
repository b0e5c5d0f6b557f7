-- Grain: one row per record of a CSV file but its header, with the md5 of all its cells and of how
-- they are read. The end of a SELECT that csv_reader.py begins; it also gives the cells in place
-- of the braces. Reads only.
-- Parameters: as normalise_csv_file.sql, and $reading.
FROM (
    SELECT *, md5(concat($reading, {cells})) AS row_md5
    {file}
)
