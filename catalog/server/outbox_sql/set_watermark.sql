-- Sets the watermark to $instant. Twice: no change.
INSERT INTO watermark (only_row, instant) VALUES (1, $instant)
ON CONFLICT (only_row) DO UPDATE SET instant = excluded.instant
