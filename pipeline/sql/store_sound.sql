-- One row with `ok`, or one per fault: every page of a SQLite database is read. Reads alone.
PRAGMA integrity_check(1)
