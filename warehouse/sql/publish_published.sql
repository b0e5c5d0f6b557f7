-- Grain: one row per day of the change log. The file's own count of its rows stands beside it.
-- Parameters: $days and $hashes, side by side; $changes, their files. Run twice: the same rows.
SELECT l.day::DATE AS day, l.sha256, m.num_rows AS versions
FROM (
    SELECT unnest($days) AS day, unnest($hashes) AS sha256, unnest($changes) AS file
) AS l
-- A path is bound as a pattern of itself (statements.py), and told as it is.
JOIN parquet_file_metadata($changes) AS m
    ON m.file_name = regexp_replace(l.file, '\[([*?\[])\]', '\1', 'g')
