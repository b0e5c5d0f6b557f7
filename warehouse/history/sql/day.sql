-- A day of the change log: begun empty or continued, written as files, and read back.
--
--     empty_… → load_… (to continue a day) → (observations are folded)
--     → write_rejects, write_snapshot, write_day_absences → count_differences → write_day, the commit
--     read_day_metadata reads the metadata of a day's file

-- name: empty_day_versions
-- Begin a day with an empty log. Run twice: the same.
DELETE FROM day_versions;

-- name: empty_snapshot
-- Begin a day with an empty snapshot. Run twice: the same.
DELETE FROM snapshot;

-- name: empty_day_absences
-- Begin a day with an empty log of absences. Run twice: the same.
DELETE FROM day_absences;

-- name: load_day_versions
-- Load the versions of a folded day, to continue it. Grain: event, version.
INSERT INTO day_versions BY NAME
SELECT * FROM read_parquet($file, hive_partitioning = false);

-- name: load_snapshot
-- Load the coins of a folded day, to continue it. Grain: slug.
INSERT INTO snapshot BY NAME
SELECT * FROM read_parquet($file, hive_partitioning = false);

-- name: load_day_absences
-- Load the absences of a folded day, to continue it. Grain: event, place.
INSERT INTO day_absences BY NAME
SELECT * FROM read_parquet($file, hive_partitioning = false);

-- name: write_rejects
-- The rejected rows of a batch as a file. Grain: row of the batch.
COPY (SELECT * FROM rejected ORDER BY position) TO $file (FORMAT parquet, COMPRESSION zstd);

-- name: write_snapshot
-- The coins of a day as a file. Grain: slug.
COPY (SELECT * FROM snapshot ORDER BY slug) TO $file (FORMAT parquet, COMPRESSION zstd);

-- name: write_day_absences
-- The changes of `missing_since` on a day as a file. Grain: event, place.
COPY (SELECT * FROM day_absences ORDER BY event_id, place)
TO $file (FORMAT parquet, COMPRESSION zstd);

-- name: count_differences
-- How many versions of a day are new or changed, and how many were removed. Grain: one row.
-- Rows are compared by a hash of all their columns, a tenth of the work of comparing wide rows.
-- A file of an older Almanac also has claimed versions, numbered 0.
WITH old AS (
    SELECT hash(v) AS row_hash
    FROM (SELECT * FROM read_parquet($file, hive_partitioning = false)) AS v
    WHERE version > 0
),
new AS (SELECT hash(v) AS row_hash FROM day_versions AS v)
SELECT
    (SELECT count(*) FROM (FROM new EXCEPT ALL FROM old)),
    (SELECT count(*) FROM (FROM old EXCEPT ALL FROM new));

-- name: write_day
-- Write the versions of a day and the records of its batches as its file. Grain: event, version.
COPY day_versions TO $file (
    FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, KV_METADATA {almanac: $meta}
);

-- name: read_day_metadata
-- The metadata of a day's file. Grain: one row.
SELECT decode(value) FROM parquet_kv_metadata($file) WHERE decode(key) = 'almanac';
