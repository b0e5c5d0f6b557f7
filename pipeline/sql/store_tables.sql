-- One row per table of a SQLite database: its name. Reads alone.
SELECT name FROM sqlite_master WHERE type = 'table'
