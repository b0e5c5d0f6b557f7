-- The interval in which an event may fall, from its date as the service gives it: macros that the
-- publication, the views and the other macros use. Arithmetic is on UTC, whatever the zone of the
-- session: an interval of days or a truncated instant would follow the zone.

-- name: macro_unknown_fields
-- Grain: a macro of one value, the fields without a bit in a bitmask.
-- Parameters: known, the bitmask. Run twice: fails; it is made once in a new file.
-- Each use is planned anew, so there is one condition for all fields.
CREATE MACRO _almanac.unknown_fields(known) AS list_filter(
    [{each fields: '@name'}],
    lambda name, place: known & (1::BIGINT << (place - 1)::INTEGER) = 0
)

-- name: macro_end_after
-- Grain: a macro of one value, the exclusive end of what begins at an instant: a day later for
-- 00:00:00, which stands for the whole day, else the next second, the unit of the service's dates.
-- Parameters: starts, an instant. Run twice: fails; it is made once in a new file.
CREATE MACRO _almanac.end_after(starts) AS
    starts
    + CASE
        WHEN epoch_us(starts) % 86400000000 = 0 THEN INTERVAL 24 HOURS
        ELSE INTERVAL 1 SECOND
    END

-- name: macro_date_precision
-- Grain: a macro of one value: instant, day, month, quarter, year or deadline; NULL without a date.
-- An estimated date of no known period is a deadline. What is not said to be exact is not exact.
-- Parameters: the fields of an event. Run twice: fails; it is made once in a new file.
CREATE MACRO _almanac.date_precision(starts, kind, is_open) AS CASE
    WHEN starts IS NULL THEN NULL
    WHEN lower(kind) IN ('month', 'quarter', 'year') THEN lower(kind)
    WHEN is_open IS DISTINCT FROM false THEN 'deadline'
    WHEN epoch_us(starts) % 86400000000 = 0 THEN 'day'
    ELSE 'instant'
END

-- name: macro_earliest
-- Grain: a macro of one value, the first instant at which an event may begin; NULL before a deadline.
-- An estimated date is the end of its period (interface, estimated dates), also where that is the
-- first instant after it; any other date is an instant of its period.
-- Parameters: starts, its date; exactness, its date_precision; is_open, whether it is estimated.
-- Run twice: fails; it is made once in a new file.
CREATE MACRO _almanac.earliest(starts, exactness, is_open) AS CASE
    WHEN exactness IN ('month', 'quarter', 'year')
        THEN date_trunc(
            exactness,
            (starts AT TIME ZONE 'UTC')
            - CASE WHEN is_open IS DISTINCT FROM false THEN INTERVAL 1 MICROSECOND
                ELSE INTERVAL 0 MICROSECONDS END
        ) AT TIME ZONE 'UTC'
    WHEN exactness <> 'deadline' THEN starts
END

-- name: macro_begins_by
-- Grain: a macro of one value, the exclusive end of the time in which an event may begin: the end of
-- its period, of the UTC day of its deadline, of its day, or of its second.
-- Parameters: starts, its date; exactness, its date_precision; first, its earliest.
-- Run twice: fails; it is made once in a new file.
CREATE MACRO _almanac.begins_by(starts, exactness, first) AS CASE
    WHEN exactness IN ('month', 'quarter', 'year')
        THEN (
            (first AT TIME ZONE 'UTC')
            + CASE exactness
                WHEN 'month' THEN INTERVAL 1 MONTH
                WHEN 'quarter' THEN INTERVAL 3 MONTHS
                ELSE INTERVAL 1 YEAR
            END
        ) AT TIME ZONE 'UTC'
    WHEN exactness = 'deadline'
        THEN (date_trunc('day', starts AT TIME ZONE 'UTC') + INTERVAL 1 DAY) AT TIME ZONE 'UTC'
    ELSE _almanac.end_after(starts)
END

-- name: macro_latest
-- Grain: a macro of one value, the exclusive end of an event: that of the time in which it may begin,
-- or of its last day if that is later.
-- Parameters: starts and ends, its date and the end of its date; exactness, its date_precision; first,
-- its earliest. Run twice: fails; it is made once in a new file.
CREATE MACRO _almanac.latest(starts, ends, exactness, first) AS
    greatest(_almanac.end_after(ends), _almanac.begins_by(starts, exactness, first))

-- name: macro_displayed_date_full
-- Grain: a macro of one value, the displayed date with its years: the service shows `08 Oct`. A text
-- that has a year stays. Without a visible text it is made of the date, as the service writes it.
-- Parameters: shown, the displayed date; starts and ends, the date and its end; exactness, its
-- date_precision; first, its earliest. Run twice: fails; it is made once in a new file.
CREATE MACRO _almanac.displayed_date_full(shown, starts, ends, exactness, first) AS CASE
    WHEN NOT regexp_matches(coalesce(shown, ''), '[^\s\pZ\pC]') THEN CASE exactness
        WHEN 'month' THEN strftime(first AT TIME ZONE 'UTC', '%b %Y')
        WHEN 'quarter' THEN 'Q' || quarter(first AT TIME ZONE 'UTC') || strftime(first AT TIME ZONE 'UTC', ' %Y')
        WHEN 'year' THEN strftime(first AT TIME ZONE 'UTC', '%Y')
        WHEN 'deadline' THEN strftime(starts AT TIME ZONE 'UTC', 'By %d %b %Y')
        ELSE strftime(starts AT TIME ZONE 'UTC', '%d %b %Y') || CASE
            WHEN (ends AT TIME ZONE 'UTC')::DATE > (starts AT TIME ZONE 'UTC')::DATE
                THEN strftime(ends AT TIME ZONE 'UTC', ' → %d %b %Y')
            ELSE ''
        END
    END
    WHEN starts IS NULL OR regexp_matches(shown, '(^|\D)\d{4}(\D|$)') THEN shown
    WHEN ends IS NOT NULL AND contains(shown, ' → ')
        THEN replace(shown, ' → ', ' ' || year(starts AT TIME ZONE 'UTC') || ' → ')
            || ' ' || year(ends AT TIME ZONE 'UTC')
    ELSE shown || ' ' || year(starts AT TIME ZONE 'UTC')
END

-- name: macro_date_exact
-- Grain: a macro of one value, the date of an event if it is exact: an instant, or a day's first one.
-- Parameters: starts, its date; exactness, its date_precision.
-- Run twice: fails; it is made once in a new file.
CREATE MACRO _almanac.date_exact(starts, exactness) AS
    CASE WHEN exactness IN ('instant', 'day') THEN starts END

-- name: macro_days_until
-- Grain: a macro of one value, the days from an instant to an exact date: whole UTC days if the date
-- is a day, so that today is 0. NULL for other dates.
-- Parameters: starts, its date; exactness, its date_precision; since, the instant.
-- Run twice: fails; it is made once in a new file.
CREATE MACRO _almanac.days_until(starts, exactness, since) AS CASE exactness
    WHEN 'instant' THEN (epoch_us(starts) - epoch_us(since)) / 86400e6
    WHEN 'day'
        THEN date_diff('day', (since AT TIME ZONE 'UTC')::DATE, (starts AT TIME ZONE 'UTC')::DATE)
END

-- name: macro_day_of
-- Grain: a macro of one value, the UTC day of an instant.
-- Parameters: moment, an instant. Run twice: fails; it is made once in a new file.
CREATE MACRO _almanac.day_of(moment) AS (moment AT TIME ZONE 'UTC')::DATE

-- name: macro_midnight
-- Grain: a macro of one value, the first instant of the UTC day of an instant.
-- Parameters: moment, an instant. Run twice: fails; it is made once in a new file.
CREATE MACRO _almanac.midnight(moment) AS _almanac.day_of(moment)::TIMESTAMP AT TIME ZONE 'UTC'
