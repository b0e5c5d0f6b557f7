-- How a date moved between two versions of an event: macros that views use. What counts is when an
-- event may begin: from earliest to begins_by, which is latest without the end of its date. A `starts`
-- is a date, an `exactness` its date_precision. Days are UTC, whatever the zone of the session.

-- name: macro_first_day
-- Grain: a macro of one value, the first UTC day on which an event may begin. Before a deadline that
-- is the day of `since`, at which it had not begun, but not a day after the deadline.
-- Parameters: starts, exactness; first, its earliest; since, an instant.
CREATE MACRO _almanac.first_day(starts, exactness, first, since) AS CASE
    WHEN exactness = 'deadline' THEN least(_almanac.day_of(since), _almanac.day_of(starts))
    ELSE _almanac.day_of(first)
END

-- name: macro_end_day
-- Grain: a macro of one value, the last UTC day on which an event may begin. DuckDB has a function
-- last_day: of this name, a macro would not be found inside another one of an attached file.
-- Parameters: starts, exactness; before, its begins_by.
CREATE MACRO _almanac.end_day(starts, exactness, before) AS CASE
    WHEN exactness IN ('month', 'quarter', 'year') THEN _almanac.day_of(before) - 1
    ELSE _almanac.day_of(starts)
END

-- name: macro_shift
-- Grain: a macro of one value, the days from one instant to another, later is positive.
-- Parameters: old, new.
CREATE MACRO _almanac.shift(old, new) AS (epoch_us(new) - epoch_us(old)) / 86400e6

-- name: macro_is_within
-- Grain: a macro of one value, whether a time in which an event may begin is inside another.
-- Parameters: first and before, its earliest and begins_by; of both. An earliest that is NULL is open.
CREATE MACRO _almanac.is_within(first, before, other_first, other_before) AS
    coalesce(first, '-infinity') >= coalesce(other_first, '-infinity') AND before <= other_before

-- name: macro_move_kind
-- Grain: a macro of one value, how a date moved (reschedules.kind). Dates of one precision are
-- compared by the ends of when they may begin, which are in the order of the starts. An event without
-- a date may begin at any time. Containment counts between dates of another precision alone: each
-- deadline contains all earlier ones.
-- Parameters: starts, exactness, first and before of both, as above.
CREATE MACRO _almanac.move_kind(
    old_starts, old_exactness, old_first, old_before,
    new_starts, new_exactness, new_first, new_before
) AS CASE
    WHEN new_starts IS NOT DISTINCT FROM old_starts
        AND new_exactness IS NOT DISTINCT FROM old_exactness
        THEN 'end_only'
    WHEN old_starts IS NULL THEN 'refined'
    WHEN new_starts IS NULL THEN 'loosened'
    WHEN new_exactness = old_exactness
        AND (
            new_before = old_before
            OR (
                new_exactness = 'instant'
                AND _almanac.day_of(new_starts) = _almanac.day_of(old_starts)
            )
        )
        THEN 'time_only'
    WHEN new_exactness <> old_exactness
        AND _almanac.is_within(new_first, new_before, old_first, old_before)
        THEN 'refined'
    WHEN new_exactness <> old_exactness
        AND _almanac.is_within(old_first, old_before, new_first, new_before)
        THEN 'loosened'
    WHEN new_before > old_before THEN 'slipped'
    ELSE 'pulled_in'
END

-- name: macro_most_lead
-- Grain: a macro of one value, the days from an instant to the last day on which an event may begin;
-- to an exact date those of macro_days_until. NULL without a date.
-- Parameters: starts, exactness; before, its begins_by; since, the instant.
CREATE MACRO _almanac.most_lead(starts, exactness, before, since) AS coalesce(
    _almanac.days_until(starts, exactness, since),
    _almanac.end_day(starts, exactness, before) - _almanac.day_of(since)
)::DOUBLE

-- name: macro_least_lead
-- Grain: a macro of one value, as macro_most_lead, to the first day on which an event may begin. Who
-- speaks of a deadline or a period expects it: it is not taken to have begun, unless all of that time
-- was over.
-- Parameters: as macro_most_lead; first, its earliest.
CREATE MACRO _almanac.least_lead(starts, exactness, first, before, since) AS CASE
    WHEN exactness IN ('instant', 'day') THEN _almanac.most_lead(starts, exactness, before, since)
    WHEN starts IS NOT NULL
        THEN greatest(
            (_almanac.first_day(starts, exactness, first, since) - _almanac.day_of(since))::DOUBLE,
            least(0, _almanac.most_lead(starts, exactness, before, since))
        )
END
