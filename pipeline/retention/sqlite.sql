-- Space in the SQLite databases of an instance.

-- name: show_page_size
-- One row: the bytes of a page. Only reads.
PRAGMA page_size

-- name: count_pages
-- One row: the pages of the database. Only reads.
PRAGMA page_count

-- name: count_free_pages
-- One row: the pages that hold nothing. Only reads.
PRAGMA freelist_count

-- name: vacuum
-- Rewrites the database without its free pages, in one transaction. Run twice: nothing more.
VACUUM

-- name: empty_journal
-- Moves what is in the write-ahead log into the database, and empties the log. Run twice: nothing
-- more.
PRAGMA wal_checkpoint(TRUNCATE)
