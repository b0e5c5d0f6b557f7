-- Grain: one row: whether the state accepted any record of an export that can come again.
-- Reads only.
SELECT EXISTS (SELECT 1 FROM sight WHERE row_md5 IS NOT NULL)
