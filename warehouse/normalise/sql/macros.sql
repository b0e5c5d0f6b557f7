-- Macros that return single values in canonical form. values.py makes those of the impact bands from
-- the edges in the contract.

-- name: define_clean
-- Grain: a macro of one text. Returns it in canonical form: LF line ends, no white space (ASCII)
-- around it, NULL if empty. The first check costs less than a copy of every ordinary text; a text
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
-- Grain: a macro of one text. Returns the instant, or NULL if there is none: ISO 8601 with a zone,
-- or UTC without one; a date alone is its midnight; years 1900 to 2200.
-- The form is checked before the cast, which would also accept 'infinity', 'epoch' or '2026/1/1'.
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
-- Grain: a macro of one cell, the separator of its list, and the pattern of an element. Returns the
-- list as a set: trimmed, without empty elements, distinct, sorted; NULL becomes the empty list. A
-- cell without a separator, the usual case, skips the general path.
-- Run twice: the same macro again.
CREATE OR REPLACE TEMP MACRO almanac_list(cell, separator, element) AS
CASE
    WHEN almanac_clean(cell) IS NULL THEN []::VARCHAR[]
    WHEN NOT contains(cell, separator) THEN [almanac_clean(cell)]
    ELSE list_sort(
        list_distinct(
            list_filter(
                list_transform(regexp_extract_all(cell, element), lambda part: almanac_clean(part)),
                lambda part: part IS NOT NULL
            )
        )
    )
END

-- name: define_is_doubtful
-- Grain: a macro of one list. Whether an element contains a separator outside brackets, or begins a
-- JSON array. The first check costs less, and refuses nearly all lists.
-- Run twice: the same macro again.
CREATE OR REPLACE TEMP MACRO almanac_is_doubtful(elements) AS
regexp_matches(array_to_string(elements, chr(10)), '[;|,\[]')
AND regexp_matches(array_to_string(elements, chr(10)), '[;|,]|(^\[)|(\n\[)')
AND regexp_matches(
    regexp_replace(array_to_string(elements, chr(10)), '\([^()]*\)', '', 'g'),
    '[;|,]|(^\[)|(\n\[)'
)

-- name: define_expected
-- Grain: a macro that returns the reason for refusing one text, cut to 80 characters.
-- Run twice: the same macro again.
CREATE OR REPLACE TEMP MACRO almanac_expected(field, expected, given) AS
    field || ': expected ' || expected
    || coalesce(', got ''' || left(given, 80) || '''', ', but it is missing')
