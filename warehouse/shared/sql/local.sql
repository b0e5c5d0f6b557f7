-- SQLite: what this machine has of the index (state/bucket.sqlite).
-- Flow: create_local; read_marks, list_local; put_local, remove_local, put_mark.

-- name: create_local
CREATE TABLE IF NOT EXISTS files (
    name TEXT PRIMARY KEY,
    sha256 TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    stat TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;

-- name: read_marks
SELECT name, value FROM marks

-- name: list_local
-- Grain: file. `folder` is the beginning of the name, `after` the first text that is not.
SELECT name, sha256, bytes, stat FROM files WHERE name >= :folder AND name < :after

-- name: put_local
INSERT OR REPLACE INTO files (name, sha256, bytes, stat)
VALUES (:name, :sha256, :bytes, :stat)

-- name: remove_local
DELETE FROM files WHERE name = :name

-- name: put_mark
INSERT OR REPLACE INTO marks (name, value) VALUES (:name, :value)
