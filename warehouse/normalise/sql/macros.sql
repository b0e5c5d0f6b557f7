-- Macros that return single values in canonical form. rows.py makes those of the impact bands from
-- the edges in the contract.

-- name: define_clean
-- Grain: a macro of one text. Returns it in canonical form: LF line ends, no white space (ASCII)
-- around it, NULL if empty. The first check costs less than a copy of every ordinary text; a text
-- below '!' is empty or begins with white space.
-- Run twice: the same macro again.
CREATE OR REPLACE TEMP MACRO almanac_clean(given) AS
CASE
    WHEN given >= '!' AND given[-1] > ' ' AND NOT contains(given, e'\r') THEN given
    ELSE nullif(trim(replace(replace(given, e'\r\n', e'\n'), e'\r', e'\n'), e' \t\n\x0b\f'), '')
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

-- name: define_set
-- Grain: a macro of a list of texts. Returns it as a set: in canonical form, without empty ones,
-- distinct, sorted.
-- Run twice: the same macro again.
CREATE OR REPLACE TEMP MACRO almanac_set(texts) AS
list_sort(
    list_distinct(
        list_filter(
            list_transform(texts, lambda given: almanac_clean(given)),
            lambda given: given IS NOT NULL
        )
    )
)

-- name: define_json_texts
-- Grain: a macro of a JSON array. Returns the text of each element but null, and of an object its
-- name, or the slug of a coin; NULL if one of them has none.
-- Run twice: the same macro again.
CREATE OR REPLACE TEMP MACRO almanac_json_texts(given, is_coin) AS
list_transform(
    list_filter(from_json(given, '["JSON"]'), lambda part: json_type(part) <> 'NULL'),
    lambda part: CASE json_type(part)
        WHEN 'ARRAY' THEN NULL
        WHEN 'OBJECT' THEN coalesce(
            if(is_coin, NULL, coalesce(part ->> 'name', part ->> 'id')), part ->> 'slug'
        )
        ELSE part ->> '$'
    END
)

-- name: define_list
-- Grain: a macro of one cell, the separator of its list, and the pattern of an element. Returns the
-- list as a set; NULL if it is a JSON array with other elements than texts. A cell without a separator,
-- the usual case, skips the general path. If the separator is NULL, the cell is one element.
-- Run twice: the same macro again.
CREATE OR REPLACE TEMP MACRO almanac_list(cell, separator, element, is_coin) AS
CASE
    WHEN almanac_clean(cell) IS NULL THEN []::VARCHAR[]
    WHEN starts_with(almanac_clean(cell), '[') AND json_valid(cell)
        THEN if(
            list_bool_or(list_transform(
                almanac_json_texts(cell, is_coin), lambda text: text IS NULL
            )),
            NULL,
            almanac_set(almanac_json_texts(cell, is_coin))
        )
    WHEN contains(cell, separator) THEN almanac_set(regexp_extract_all(cell, element))
    ELSE [almanac_clean(cell)]
END
