-- A day of the change log: begun empty or continued, written as files, and read back.
--
--     empty_day_versions, empty_snapshot | load_day_versions, load_snapshot → (observations are folded)
--     → find_claims → write_rejects, write_snapshot → count_differences → write_day, the commit
--     read_day_metadata reads the metadata of a day's file

-- name: empty_day_versions
-- Begin a day with an empty log. Run twice: the same.
DELETE FROM day_versions;

-- name: empty_snapshot
-- Begin a day with an empty snapshot. Run twice: the same.
DELETE FROM snapshot;

-- name: load_day_versions
-- Load the versions of a folded day, to continue it. Grain: event, version. Claims are left out:
-- they follow from first versions.
INSERT INTO day_versions BY NAME
SELECT * FROM read_parquet($file, hive_partitioning = false) WHERE version > 0;

-- name: load_snapshot
-- Load the coins of a folded day, to continue it. Grain: slug.
INSERT INTO snapshot BY NAME
SELECT * FROM read_parquet($file, hive_partitioning = false);

-- name: find_claims
-- Version 0 for each first version of a day: what the service claims of the time before it was
-- watched. Grain: event. Its content is known only if the event was never updated.
CREATE OR REPLACE TEMP VIEW claims AS
SELECT
    event_id, 0::INTEGER AS version, created_at AS known_from, 'claimed' AS known_basis,
    ['created'] AS change_kinds, []::VARCHAR[] AS changed_fields, batch_id, feed, plan,
    created_at AS content_at,
    {each fields before last_verified_at: if(updated_at = created_at, @name, NULL) AS @name},
    if(updated_at = created_at AND last_verified_at <= created_at, last_verified_at, NULL)
        AS last_verified_at,
    created_at,
    {each fields after created_at: if(updated_at = created_at, @name, NULL) AS @name},
    'scheduled' AS status, NULL::TIMESTAMPTZ AS cancelled_at,
    CASE
        WHEN updated_at IS DISTINCT FROM created_at
            THEN known & (1 << (list_position(event_fields(), 'created_at') - 1))
        WHEN last_verified_at > created_at
            THEN known & ~(1 << (list_position(event_fields(), 'last_verified_at') - 1))
        ELSE known
    END AS known,
    if(updated_at = created_at, extra, NULL) AS extra
FROM day_versions
WHERE version = 1 AND created_at < known_from;

-- name: write_rejects
-- The rejected rows of a batch as a file. Grain: row of the batch.
COPY (SELECT * FROM rejected ORDER BY position) TO $file (FORMAT parquet, COMPRESSION zstd);

-- name: write_snapshot
-- The coins of a day as a file. Grain: slug.
COPY (SELECT * FROM snapshot ORDER BY slug) TO $file (FORMAT parquet, COMPRESSION zstd);

-- name: count_differences
-- How many versions of a day are new or changed, and how many were removed. Grain: one row.
WITH old AS (SELECT * FROM read_parquet($file, hive_partitioning = false) WHERE version > 0)
SELECT
    (SELECT count(*) FROM (FROM day_versions EXCEPT ALL FROM old)),
    (SELECT count(*) FROM (FROM old EXCEPT ALL FROM day_versions));

-- name: write_day
-- Write the versions of a day and the records of its batches as its file. Grain: event, version.
COPY (FROM day_versions UNION ALL FROM claims)
TO $file (FORMAT parquet, COMPRESSION zstd, KV_METADATA {almanac: $meta});

-- name: read_day_metadata
-- The metadata of a day's file. Grain: one row.
SELECT decode(value) FROM parquet_kv_metadata($file) WHERE decode(key) = 'almanac';
