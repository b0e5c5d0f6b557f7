-- name: macro_instant
-- Grain: a macro of one value. Gives the instant; what names no zone is UTC, whatever the zone of
-- the session.
-- Parameters: ts, an instant, or a date, timestamp or text.
-- A text is looked at first: cast to TIMESTAMP, it loses the zone that it names.
-- Run twice: fails, since the macro is there; it is made once in a new file.
CREATE MACRO _almanac.instant(ts) AS CASE
    WHEN typeof(ts) = 'TIMESTAMP WITH TIME ZONE'
        OR (typeof(ts) = 'VARCHAR'
            AND regexp_matches(ts::VARCHAR, '\d:\d\d(:\d\d([.,]\d*)?)?\s*([A-Za-z]|[+-]\s*\d)'))
        THEN ts::TIMESTAMPTZ
    ELSE ts::TIMESTAMP AT TIME ZONE 'UTC'
END

-- name: macro_shown
-- Grain: a macro of one value, an instant as a message shows it.
-- Parameters: moment, an instant. Run twice: fails; it is made once in a new file.
CREATE MACRO _almanac.shown(moment) AS
    strftime(moment::TIMESTAMPTZ AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%SZ')

-- name: macro_refused
-- Grain: a macro of one value, false; an error for an instant without an answer, since nothing was
-- pulled before it, or since it is still to come. By the clock of the service, the last pull is not.
-- Parameters: caller, the macro that was called; what, the rows that it gives; ts, its instant;
-- first_at and last_at, the pulls of these rows; advice, what to use for earlier times.
-- Run twice: fails, since the macro is there; it is made once in a new file.
CREATE MACRO _almanac.refused(caller, what, ts, first_at, last_at, advice) AS CASE
    WHEN _almanac.instant(ts) BETWEEN first_at::TIMESTAMPTZ AND greatest(now(), last_at) THEN false
    ELSE error(caller || ': ' || CASE
        WHEN ts IS NULL THEN 'the instant is NULL'
        WHEN first_at IS NULL
            THEN 'no pull of ' || what || ' was merged yet, so nothing was known at any time'
        WHEN _almanac.instant(ts) < first_at::TIMESTAMPTZ
            THEN ts::VARCHAR || ' is before the first observation at ' || _almanac.shown(first_at)
                || '; nothing was observed before it' || advice
        ELSE ts::VARCHAR || ' is still to come: the time is ' || _almanac.shown(now())
            || ', the last pull was at ' || coalesce(_almanac.shown(last_at), 'no time')
            || '. Use now() for what is known'
    END)
END
