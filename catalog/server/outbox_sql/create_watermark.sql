-- At most one row: the catalog's instant up to which changes are enqueued.
-- Run once, in the transaction that makes the file.
CREATE TABLE watermark (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    instant INTEGER NOT NULL
) STRICT
