-- Grain: a macro of one text. Gives the instant, or NULL where there is none: ISO 8601 with a
-- zone, or UTC where none is said; a date alone is its midnight; years 1900 to 2200.
-- The form is looked at before the cast, which would also take 'infinity', 'epoch' or '2026/1/1'.
-- Run twice: the same macro again.
CREATE OR REPLACE TEMP MACRO almanac_instant(given) AS
CASE
    WHEN given NOT BETWEEN '1900' AND '2201' THEN NULL
    WHEN given LIKE '____-__-__T__:__:__Z' THEN try_cast(given AS TIMESTAMPTZ)
    WHEN regexp_full_match(
        given,
        '\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]\d\d(:?\d\d)?)?)?'
    )
        THEN try_cast(upper(given) AS TIMESTAMPTZ)
END
