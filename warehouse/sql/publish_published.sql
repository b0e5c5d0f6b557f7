-- Grain: one row per day of the change log. The file's own count of its rows stands beside it.
-- Parameters: $days and $hashes, side by side; $changes, their files. Run twice: the same rows.
SELECT l.day::DATE AS day, l.sha256, m.num_rows AS versions
FROM (
    SELECT unnest($days) AS day, unnest($hashes) AS sha256, unnest($changes) AS file
) AS l
JOIN parquet_file_metadata($changes) AS m ON m.file_name = l.file
