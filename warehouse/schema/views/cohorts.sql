-- Which events a share may count: macros that views use.

-- name: macro_was_watched
-- Grain: a macro of one value, whether an event was watched: it was scheduled and not over when it was
-- first observed. The service lists no cancelled event, so of the others it is known whether they took
-- place, and never how many were cancelled.
-- Parameters: status, latest and known_from of its first observed version.
-- Run twice: fails; it is made once in a new file.
CREATE MACRO _almanac.was_watched(first_status, first_latest, first_known) AS
    coalesce(first_status = 'scheduled' AND first_latest > first_known, false)
