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
