-- name: macro_instant
-- Grain: a macro of one value. Gives the instant; what names no zone is UTC, whatever the zone of
-- the session. NULL if it can't be read, for which macro_refused has the error: an error in here
-- would keep a scan from skipping row groups.
-- Parameters: ts, an instant, or a date, timestamp or text.
-- A text has a form of its own, so that other values do not pay for planning it. It is looked at
-- first: cast to TIMESTAMP it loses the zone that it names, and cast to TIMESTAMPTZ an abbreviation is
-- one of ICU's short names: CST is Chicago there, and may be China to its author.
CREATE MACRO _almanac.instant(ts VARCHAR) AS CASE
    WHEN regexp_full_match(
        ts, '\s*\d{4}[-/]\d\d?[-/]\d\d?([Tt ]+\d\d?:\d\d(:\d\d([.,]\d+)?)?(\s*([Zz]|(?i:UTC|GMT)|[+-]00(:?00)?))?)?\s*'
    )
        THEN _almanac.local_of(ts) AT TIME ZONE 'UTC'
    WHEN regexp_full_match(
        ts,
        '[^:]+:\d\d(:\d\d([.,]\d+)?)?(\s*[+-](0\d|1[0-5])(:?[0-5]\d)?|\s*[A-Za-z][\w+-]*(/[\w+-]+)+)\s*'
    )
        THEN _almanac.first_of(
            _almanac.local_of(ts),
            regexp_replace(
                ' ' || regexp_extract(ts, ':[\d:.,]*\s*([^\s\d:.,]\S*)\s*$', 1),
                '^ ([+-])', '\1'
            )
        )
END, (ts) AS CASE
    WHEN typeof(ts) LIKE '%WITH TIME ZONE' THEN ts::TIMESTAMPTZ
    WHEN typeof(ts) LIKE 'TIMESTAMP%' OR typeof(ts) = 'DATE'
        THEN TRY_CAST(ts::VARCHAR AS TIMESTAMP) AT TIME ZONE 'UTC'
END

-- name: macro_local_of
-- Grain: a macro of one value, the date and time of a text, without its zone; NULL if it has none.
-- Parameters: given, the text.
CREATE MACRO _almanac.local_of(given) AS TRY_CAST(replace(regexp_extract(
    given, '^\s*(\d{4}[-/]\d\d?[-/]\d\d?([Tt ]+\d\d?:[\d:.,]+)?)', 1
), ',', '.') AS TIMESTAMP)

-- name: macro_first_of
-- Grain: a macro of one value, the first instant at which the clocks of a zone show a time. DuckDB takes
-- the last of two; of one that is skipped this is an hour earlier than DuckDB has it.
-- Parameters: local, the time; zone, an offset or an IANA name.
CREATE MACRO _almanac.first_of(local, zone) AS least(
    _almanac.zoned(local, zone),
    _almanac.zoned(local - INTERVAL 60 MINUTES, zone) + INTERVAL 60 MINUTES,
    _almanac.zoned(local + INTERVAL 60 MINUTES, zone) - INTERVAL 60 MINUTES
)

-- name: macro_zoned
-- Grain: a macro of one value, the instant of a time in a zone as DuckDB reads it, NULL if there is no
-- such zone. DuckDB 1.4 wants seconds.
-- Parameters: local, zone, as macro_first_of.
CREATE MACRO _almanac.zoned(local, zone) AS
    TRY_CAST(strftime(local, '%Y-%m-%d %H:%M:%S.%f') || zone AS TIMESTAMPTZ)

-- name: macro_shown
-- Grain: a macro of one value, an instant as a message shows it.
-- Parameters: moment, an instant.
CREATE MACRO _almanac.shown(moment) AS
    strftime(moment::TIMESTAMPTZ AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%SZ')

-- name: macro_unreadable
-- Grain: a macro of one value, why a text is not a timestamp.
-- Parameters: ts, the text.
CREATE MACRO _almanac.unreadable(ts) AS
    '''' || ts::VARCHAR || ''' is not a timestamp. Expected a form such as 2026-03-02 or 2026-03-02 12:00:00, '
    || 'which is UTC; the time may end in Z, UTC, GMT, an offset such as -06:00, or an IANA name such '
    || 'as America/Chicago. An abbreviation such as CST means several zones'

-- name: macro_refused
-- Grain: a macro of one value, false; an error for an instant without an answer, since nothing was
-- pulled before it, or since it is still to come. By the clock of the service, the last pull is not.
-- Parameters: caller, the macro that was called; what, the rows that it gives; ts, its parameter, and
-- moment, the instant of it; first_at and last_at, the pulls of these rows; advice, what to use for
-- earlier times. The instant is a column, since each use of macro_instant is planned anew.
CREATE MACRO _almanac.refused(caller, what, ts, moment, first_at, last_at, advice) AS CASE
    WHEN moment BETWEEN first_at::TIMESTAMPTZ AND greatest(now(), last_at) THEN false
    ELSE error(caller || ': ' || CASE
        WHEN ts IS NULL THEN 'the timestamp is NULL'
        WHEN moment IS NULL THEN _almanac.unreadable(ts)
        WHEN first_at IS NULL
            THEN 'no pull of ' || what || ' was merged yet, so nothing was known at any time'
        WHEN moment < first_at::TIMESTAMPTZ
            THEN ts::VARCHAR || ' is before the first observation at ' || _almanac.shown(first_at)
                || '; nothing was observed before it' || advice
        ELSE ts::VARCHAR || ' is still to come: the time is ' || _almanac.shown(now())
            || ', the last pull was at ' || coalesce(_almanac.shown(last_at), 'no time')
            || '. Use now() for what is known'
    END)
END
