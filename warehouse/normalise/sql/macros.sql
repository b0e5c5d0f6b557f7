-- Macros that give single values in canonical form. Those of the impact bands are made from the
-- contract's edges (values.py).

-- name: define_clean
-- Grain: a macro of one text. Gives it in canonical form: LF line ends, no white space (ASCII)
-- around it, NULL for nothing. The guard costs less than to copy every ordinary text; a text
-- below '!' is empty or begins with white space.
-- Run twice: the same macro again.
CREATE OR REPLACE TEMP MACRO almanac_clean(given) AS
CASE
    WHEN given IS NULL THEN NULL
    WHEN given >= '!' AND given[-1] > ' ' AND NOT contains(given, chr(13)) THEN given
    ELSE nullif(
        trim(
            replace(replace(given, chr(13) || chr(10), chr(10)), chr(13), chr(10)),
            ' ' || chr(9) || chr(10) || chr(11) || chr(12)
        ),
        ''
    )
END

-- name: define_instant
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

-- name: define_list
-- Grain: a macro of one cell and the separator that joins its list. Gives the list as a set:
-- trimmed, without empty elements, distinct, sorted; NULL becomes the empty list. One and two
-- elements, the usual case, are spared the general way.
-- Run twice: the same macro again.
CREATE OR REPLACE TEMP MACRO almanac_list(cell, separator) AS
CASE
    WHEN almanac_clean(cell) IS NULL THEN []::VARCHAR[]
    WHEN NOT contains(cell, separator) THEN [almanac_clean(cell)]
    ELSE list_sort(
        list_distinct(
            list_filter(
                list_transform(string_split(cell, separator), lambda element: almanac_clean(element)),
                lambda element: element IS NOT NULL
            )
        )
    )
END

-- name: define_expected
-- Grain: a macro that gives the reason for refusing one text, cut to 80 characters.
-- Run twice: the same macro again.
CREATE OR REPLACE TEMP MACRO almanac_expected(field, expected, given) AS
    field || ': expected ' || expected || ', met ' || coalesce('''' || left(given, 80) || '''', 'nothing')
