-- A day begins with nothing in its log. Twice is once.
DELETE FROM log;
