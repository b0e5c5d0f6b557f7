-- Which events a share may count: macros that views use.

-- name: macro_was_known
-- Grain: a macro of one value, whether a version was known at any time: another may have replaced it at
-- the instant at which it became known.
-- Parameters: since and until, its known_from and known_to.
CREATE MACRO _almanac.was_known(since, until) AS until IS NULL OR until > since

-- name: macro_was_at_risk
-- Grain: a macro of one value, whether an event was at risk: it was scheduled and not over when it was
-- first observed. The service lists no cancelled event, so of the others it is known whether they took
-- place, and never how many were cancelled.
-- Parameters: status, latest and known_from of the first version of it that was known.
CREATE MACRO _almanac.was_at_risk(first_status, first_latest, first_known) AS
    coalesce(first_status = 'scheduled' AND first_latest > first_known, false)
