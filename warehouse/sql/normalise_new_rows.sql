-- Grain: one row per record of a CSV file that did not come before. The end of a SELECT that
-- csv_reader.py begins. Reads only.
FROM arrived
WHERE NOT is_again
