-- The interval in which an event may fall, from its date as the service gives it: macros that the
-- publication, the views and the other macros use. Arithmetic is on UTC, whatever the zone of the
-- session: an interval of days or a truncated instant would follow the zone.

-- name: macro_unknown_fields
-- Grain: a macro of one value, the fields without a bit in a bitmask.
-- Parameters: known, the bitmask.
-- Each use is planned anew, so there is one condition for all fields.
CREATE MACRO _almanac.unknown_fields(known) AS list_filter(
    [{each fields: '@name'}],
    lambda name, place: known & (1::BIGINT << (place - 1)::INTEGER) = 0
)

-- name: macro_end_after
-- Grain: a macro of one value, the exclusive end of what begins at an instant: a day later for
-- 00:00:00, which stands for the whole day, else the next second, the unit of the service's dates.
-- Parameters: starts, an instant.
CREATE MACRO _almanac.end_after(starts) AS
    starts
    + CASE
        WHEN epoch_us(starts) % 86400000000 = 0 THEN INTERVAL 24 HOURS
        ELSE INTERVAL 1 SECOND
    END

-- name: macro_date_precision
-- Grain: a macro of one value: instant, day, month, quarter, year or deadline; NULL without a date.
-- An estimated date of no known period is a deadline. What is not said to be exact is not exact.
-- Parameters: the fields of an event.
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
-- its earliest.
CREATE MACRO _almanac.latest(starts, ends, exactness, first) AS
    greatest(_almanac.end_after(ends), _almanac.begins_by(starts, exactness, first))

-- name: macro_period_word
-- Grain: a macro of one value, the pattern of a month, quarter or half in a displayed date.
CREATE MACRO _almanac.period_word() AS
    '\b(q[1-4]|h[12]|jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?'
    || '|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b'

-- name: macro_with_year
-- Grain: a macro of one value, a displayed date with its years: the service shows `08 Oct`. A text that
-- has a year stays, and one that names no day or period, as `TBA`. The first instant of a year may be
-- the end of the one before.
-- Parameters: shown, the displayed date; starts and ends, the date and its end.
CREATE MACRO _almanac.with_year(shown, starts, ends) AS CASE
    WHEN starts IS NULL OR regexp_matches(shown, '(^|\D)\d{4}(\D|$)') THEN shown
    WHEN NOT regexp_matches(shown, '\b\d\d?(st|nd|rd|th)?\b|' || _almanac.period_word(), 'i') THEN shown
    WHEN ends IS NOT NULL AND contains(shown, ' → ')
        THEN replace(shown, ' → ', ' ' || year(starts AT TIME ZONE 'UTC') || ' → ')
            || ' ' || year(ends AT TIME ZONE 'UTC')
    ELSE shown || ' ' || year(
        (starts AT TIME ZONE 'UTC')
        - to_hours(24 * regexp_matches(shown, '\b(dec|q4|h2)', 'i')::INTEGER)
    )
END

-- name: macro_displayed_date_full
-- Grain: a macro of one value, the displayed date with its years. Without a visible text it is made of
-- the date, as the service writes it.
-- Parameters: shown, the displayed date; starts and ends, the date and its end; exactness, its
-- date_precision; first, its earliest.
CREATE MACRO _almanac.displayed_date_full(shown, starts, ends, exactness, first) AS CASE
    WHEN regexp_matches(shown, '[^\s\pZ\pC]') THEN _almanac.with_year(shown, starts, ends)
    ELSE CASE exactness
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
END

-- name: macro_edge
-- Grain: a macro of one value, the start (edge 0) or the exclusive end (1) of a period.
-- Parameters: word, as of macro_period_word, empty for the whole year; in_year, a text; edge.
CREATE MACRO _almanac.edge(word, in_year, edge) AS (make_timestamp(
    in_year::BIGINT,
    CASE word[1]
        WHEN '' THEN 1 + edge * 11
        WHEN 'q' THEN word[2]::BIGINT * 3 - 2 + edge * 2
        WHEN 'h' THEN word[2]::BIGINT * 6 - 5 + edge * 5
        ELSE strpos('janfebmaraprmayjunjulaugsepoctnovdec', word[:3]) // 3 + 1
    END,
    1, 0, 0, 0
) + to_months(edge)) AT TIME ZONE 'UTC'

-- name: macro_agreed_period
-- Grain: a macro of one value, {exactness, first} of an event whose displayed period contradicts its
-- date; NULL if it does not. What both allow counts, else what the displayed period allows; as the
-- shortest month, quarter or year that contains it.
-- Parameters: shown, the displayed date; starts and ends, the date and its end; exactness, its
-- date_precision; first, its earliest.
CREATE MACRO _almanac.agreed_period(shown, starts, ends, exactness, first) AS CASE
    WHEN starts IS NOT NULL AND regexp_full_match(
        shown,
        '((early|mid|late|start|beginning|end|of|to|20\d\d|' || _almanac.period_word() || ')([^0-9a-z]+|$))+',
        'i'
    ) AND shown IS DISTINCT FROM CASE exactness  -- Most texts: the rest is slow.
        WHEN 'month' THEN strftime(first AT TIME ZONE 'UTC', '%b %Y')
        WHEN 'quarter' THEN 'Q' || quarter(first AT TIME ZONE 'UTC') || strftime(first AT TIME ZONE 'UTC', ' %Y')
        WHEN 'year' THEN strftime(first AT TIME ZONE 'UTC', '%Y')
    END THEN list_transform(list_transform(list_transform(list_transform(
        [lower(regexp_replace(
            _almanac.with_year(shown, starts, ends), '\b(early|mid|late|start|beginning|end|of|to)\b', '', 'gi'
        ))],
        lambda text: {
            'low': _almanac.edge(regexp_extract(text, '[a-z]+\d?'), regexp_extract(text, '20\d\d'), 0),
            'high': _almanac.edge(
                regexp_extract(text, '.*\b([a-z]+\d?)', 1), regexp_extract(text, '.*(20\d\d)', 1), 1
            ),
            'date_low': coalesce(first, '-infinity'),
            'date_high': _almanac.latest(starts, ends, exactness, first)
        }),
        lambda t: CASE
            WHEN t.date_high <= t.low OR t.date_low >= t.high
                THEN {'low': t.low, 'high': t.high, 'is_apart': true}
            ELSE {'low': greatest(t.low, t.date_low), 'high': least(t.high, t.date_high), 'is_apart': false}
        END),
        lambda t: {'low': t.low, 'is_apart': t.is_apart, 'exactness': list_filter(
            ['month', 'quarter', 'year'],
            lambda k: date_trunc(k, t.low AT TIME ZONE 'UTC')
                = date_trunc(k, t.high AT TIME ZONE 'UTC' - INTERVAL 1 MICROSECOND)
        )[1]}),
        lambda t: CASE
            WHEN t.is_apart OR (exactness IN ('month', 'quarter', 'year') AND t.exactness <> exactness)
                THEN {
                    'exactness': coalesce(t.exactness, exactness),
                    'first': coalesce(
                        date_trunc(t.exactness, t.low AT TIME ZONE 'UTC') AT TIME ZONE 'UTC', first
                    )
                }
        END
    )[1]
END

-- name: macro_date_doubt
-- Grain: a macro of one value, how the displayed date contradicts the date, or NULL.
-- Parameters: period, the agreed_period; shown, the displayed date; starts, the date; exactness, what its
-- type says.
CREATE MACRO _almanac.date_doubt(period, shown, starts, exactness) AS CASE WHEN period IS NOT NULL THEN
    'displayed as ' || shown || ', but the date is ' || strftime(starts AT TIME ZONE 'UTC', '%Y-%m-%d')
    || ' (' || exactness || ')'
END

-- name: macro_date_exact
-- Grain: a macro of one value, the date of an event if it is exact: an instant, or a day's first one.
-- Parameters: starts, its date; exactness, its date_precision.
CREATE MACRO _almanac.date_exact(starts, exactness) AS
    CASE WHEN exactness IN ('instant', 'day') THEN starts END

-- name: macro_days_until
-- Grain: a macro of one value, the days from an instant to an exact date: whole UTC days if the date
-- is a day, so that today is 0. NULL for other dates.
-- Parameters: starts, its date; exactness, its date_precision; since, the instant.
CREATE MACRO _almanac.days_until(starts, exactness, since) AS CASE exactness
    WHEN 'instant' THEN (epoch_us(starts) - epoch_us(since)) / 86400e6
    WHEN 'day'
        THEN date_diff('day', (since AT TIME ZONE 'UTC')::DATE, (starts AT TIME ZONE 'UTC')::DATE)
END

-- name: macro_day_of
-- Grain: a macro of one value, the UTC day of an instant.
-- Parameters: moment, an instant.
CREATE MACRO _almanac.day_of(moment) AS (moment AT TIME ZONE 'UTC')::DATE

-- name: macro_midnight
-- Grain: a macro of one value, the first instant of the UTC day of an instant.
-- Parameters: moment, an instant.
CREATE MACRO _almanac.midnight(moment) AS _almanac.day_of(moment)::TIMESTAMP AT TIME ZONE 'UTC'
