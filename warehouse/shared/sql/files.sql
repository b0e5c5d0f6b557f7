-- The files of the home that are in the bucket, each with the sha256 of its object.
-- Flow: create_files; share_files > put_file, remove_files, remove_folder_files; lock_files >
-- list_changed_files > list_files. A removed file keeps its row with a new `seq`, so that other
-- machines remove their copy.

-- name: create_files
CREATE SEQUENCE IF NOT EXISTS almanac.files_seq;

CREATE TABLE IF NOT EXISTS almanac.files (
    name text PRIMARY KEY,
    sha256 text,
    bytes bigint NOT NULL,
    epoch bigint NOT NULL,
    seq bigint NOT NULL DEFAULT nextval('almanac.files_seq')
);

CREATE INDEX IF NOT EXISTS files_by_seq ON almanac.files (seq);

CREATE INDEX IF NOT EXISTS files_by_sha256 ON almanac.files (sha256);

CREATE TABLE IF NOT EXISTS almanac.home (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    id uuid NOT NULL DEFAULT gen_random_uuid()
);

INSERT INTO almanac.home DEFAULT VALUES ON CONFLICT DO NOTHING;

-- Any machine may land. Files of the lake are written under the lease alone.
CREATE OR REPLACE TRIGGER refuse_stale_writer
AFTER INSERT OR UPDATE ON almanac.files
FOR EACH ROW WHEN (NEW.name LIKE 'lake/%') EXECUTE FUNCTION almanac.refuse_stale_writer();

CREATE OR REPLACE TRIGGER refuse_stale_removal
AFTER DELETE ON almanac.files
FOR EACH ROW WHEN (OLD.name LIKE 'lake/%') EXECUTE FUNCTION almanac.refuse_stale_writer();

-- name: read_home
-- Grain: one row: the id of the home, and whether the bucket has a file of it.
SELECT id::text, EXISTS (SELECT FROM almanac.files) FROM almanac.home

-- name: share_files
-- Every transaction that writes rows begins with it. A transaction that holds `lock_files` waits
-- for those, so it sees each row whose `seq` is below the newest one.
SELECT pg_advisory_xact_lock_shared(hashtext('almanac'), hashtext('files'))

-- name: stay_active
-- The server ends a transaction that is idle for too long.
SELECT 1

-- name: lock_files
SELECT pg_advisory_xact_lock(hashtext('almanac'), hashtext('files'))

-- name: put_file
INSERT INTO almanac.files (name, sha256, bytes, epoch)
VALUES (%(name)s, %(sha256)s, %(bytes)s, %(epoch)s)
ON CONFLICT (name) DO UPDATE SET
    sha256 = EXCLUDED.sha256,
    bytes = EXCLUDED.bytes,
    epoch = EXCLUDED.epoch,
    seq = EXCLUDED.seq
RETURNING seq

-- name: remove_files
UPDATE almanac.files SET sha256 = NULL, bytes = 0, seq = nextval('almanac.files_seq')
WHERE name = ANY(%(names)s) AND sha256 IS NOT NULL
RETURNING seq

-- name: remove_folder_files
UPDATE almanac.files SET sha256 = NULL, bytes = 0, seq = nextval('almanac.files_seq')
WHERE starts_with(name, %(folder)s) AND sha256 IS NOT NULL

-- name: list_changed_files
-- Grain: file. `seen` is the newest `seq` that this machine has seen.
SELECT name, sha256, bytes, seq FROM almanac.files WHERE seq > %(seen)s ORDER BY seq

-- name: list_files
-- Grain: file that exists. `folder` is the beginning of its name.
SELECT name, sha256, bytes, seq FROM almanac.files
WHERE starts_with(name, %(folder)s) AND sha256 IS NOT NULL
ORDER BY name

-- name: list_hashes
-- Grain: object that a file refers to.
SELECT DISTINCT sha256 FROM almanac.files WHERE sha256 IS NOT NULL

-- name: refers_to
-- Grain: one row if a file refers to the object.
SELECT 1 FROM almanac.files WHERE sha256 = %(sha256)s LIMIT 1

-- name: claim_name
-- Grain: one row. The claim ends with the session.
SELECT pg_try_advisory_lock(hashtext('almanac claim'), hashtext(%(name)s))
