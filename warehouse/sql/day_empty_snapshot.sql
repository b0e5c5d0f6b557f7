-- A day begins with nothing in its snapshot. Twice is once.
DELETE FROM snapshot;
