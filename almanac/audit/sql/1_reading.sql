-- The caller's values in the form in which they are compared: a key, equal for equal values. 0 is
-- NULL. `given` has a column `value` and any others, which are kept. Values used and values known are
-- read by the same statement, but for instants and coins.
--
--     read_texts | read_naive ─▶ placed_in_zone | read_aware ─▶ keys_of_instant      instants
--     keys_of_*                                                                     other values

-- name: read_texts
-- Grain: one row per row of `given`, a text read as an instant (zoned), or as the time of day that it
-- gives (local), if it names no zone; is_day: it is a date alone; midnight: the date that it gives if
-- its time of day is 00:00 as written. NULL if it is neither, or if its zone is an abbreviation.
-- Parameters: none. Run twice: the same rows.
SELECT
    * EXCLUDE (value, stamp, local, names_no_zone),
    CASE WHEN NOT names_no_zone
        AND stamp BETWEEN TIMESTAMPTZ '1900-01-01 00:00:00+00' AND TIMESTAMPTZ '2200-12-31 00:00:00+00'
        THEN stamp END AS zoned,
    CASE WHEN names_no_zone AND stamp IS NOT NULL
        AND local BETWEEN TIMESTAMP '1900-01-01' AND TIMESTAMP '2200-12-31'
        THEN local END AS local,
    coalesce(trim(value) = '', true) AS is_empty,
    coalesce(NOT contains(value, ':'), false) AS is_day,
    CASE WHEN stamp IS NOT NULL AND local::TIME = TIME '00:00:00' THEN local::DATE END AS midnight
FROM (
    SELECT
        *,
        _almanac.instant(value) AS stamp,
        _almanac.local_of(value) AS local,
        coalesce(regexp_full_match(value, '[^:]*(:[\d:.,]+\s*)?'), true) AS names_no_zone
    FROM given
)

-- name: read_naive
-- Grain: one row per row of `given`, a timestamp without a zone or a date; as read_texts.
-- Parameters: $is_day, whether it is a date. Run twice: the same rows.
SELECT
    * EXCLUDE (value),
    NULL::TIMESTAMPTZ AS zoned,
    CASE WHEN value BETWEEN TIMESTAMP '1900-01-01' AND TIMESTAMP '2200-12-31'
        THEN value::TIMESTAMP END AS local,
    value IS NULL AS is_empty,
    $is_day::BOOLEAN AS is_day,
    CASE WHEN value::TIMESTAMP::TIME = TIME '00:00:00' THEN value::DATE END AS midnight
FROM given

-- name: placed_in_zone
-- Grain: one row per row of `given`, as read_texts gives it, with its instant. A time of day that
-- occurs twice, as clocks go back, is the first; one that is skipped is an hour earlier: the earlier
-- of two instants knows less.
-- Parameters: $tz. Run twice: the same rows.
SELECT
    * EXCLUDE (zoned, local, guess, is_day),
    CASE
        WHEN zoned IS NOT NULL OR $tz = 'UTC' THEN coalesce(zoned, guess)
        WHEN (guess - INTERVAL 1 HOUR) AT TIME ZONE $tz = local OR guess AT TIME ZONE $tz <> local
            THEN guess - INTERVAL 1 HOUR
        ELSE guess
    END AS instant,
    local IS NOT NULL AS is_naive,
    local IS NOT NULL AND is_day AS is_day
FROM (SELECT *, local AT TIME ZONE $tz AS guess FROM given)

-- name: read_aware
-- Grain: one row per row of `given`, a timestamp with a zone as an instant. `written` is its time of
-- day in the zone of the column.
-- Parameters: none. Run twice: the same rows.
SELECT
    * EXCLUDE (value, written),
    CASE WHEN value
        BETWEEN TIMESTAMPTZ '1900-01-01 00:00:00+00' AND TIMESTAMPTZ '2200-12-31 00:00:00+00'
        THEN value::TIMESTAMPTZ
    END AS instant,
    value IS NULL AS is_empty,
    false AS is_naive,
    false AS is_day,
    CASE
        WHEN written::TIME = TIME '00:00:00' THEN written::DATE
        WHEN epoch_us(value) % 86400000000 = 0 THEN (value AT TIME ZONE 'UTC')::DATE
    END AS midnight
FROM given

-- name: keys_of_instant
-- Grain: one row per row of `given`, with the key of what read_* found. A date alone is a calendar
-- day, which is compared as a day of UTC. A midnight as it is written is an instant or, by the key
-- `loose`, a day: pandas, Polars and spreadsheets write days so.
-- Parameters: none. Run twice: the same rows.
SELECT
    * EXCLUDE (instant, is_empty, is_naive, is_day, midnight),
    CASE
        WHEN instant IS NULL THEN 0::UBIGINT
        WHEN is_day THEN hash('day', midnight)
        ELSE hash('instant', epoch_us(instant))
    END AS key,
    CASE WHEN instant IS NOT NULL AND NOT is_day AND midnight IS NOT NULL
        THEN hash('day', midnight)
    END AS loose,
    is_empty OR instant IS NOT NULL AS is_read
FROM given

-- name: known_instant_keys
-- Grain: one row per row of `given` and key: the instant has that of its day as well.
-- Parameters: none. Run twice: the same rows.
SELECT
    * EXCLUDE (value),
    unnest(CASE WHEN value IS NULL THEN [0::UBIGINT] ELSE [
        hash('instant', epoch_us(value)),
        hash('day', (value AT TIME ZONE 'UTC')::DATE)
    ] END) AS key
FROM given

-- name: known_coin_keys
-- Grain: one row per row of `given`, a list of slugs, and slug.
-- Parameters: none. Run twice: the same rows.
SELECT * EXCLUDE (value), unnest(list_transform(value, lambda slug: hash(slug))) AS key FROM given

-- name: keys_of_coin
-- Grain: one row per row of `given`, a slug.
-- Parameters: none. Run twice: the same rows.
SELECT * EXCLUDE (value), hash(value) AS key, NULL::UBIGINT AS loose, true AS is_read FROM given

-- name: keys_of_text
-- Grain: one row per row of `given`. Line ends are LF; blanks around it, and the mark that keeps a
-- spreadsheet from running it, do not count.
-- Parameters: none. Run twice: the same rows.
SELECT
    * EXCLUDE (value),
    coalesce(hash(nullif(trim(
        regexp_replace(replace(replace(value, chr(13) || chr(10), chr(10)), chr(13), chr(10)),
            '^''([=+\-@\t])', '\1')
    , ' ' || chr(10) || chr(9)), '')), 0::UBIGINT) AS key,
    NULL::UBIGINT AS loose,
    true AS is_read
FROM given

-- name: keys_of_word
-- Grain: one row per row of `given`, in any case.
-- Parameters: none. Run twice: the same rows.
SELECT
    * EXCLUDE (value),
    coalesce(hash(nullif(lower(trim(value)), '')), 0::UBIGINT) AS key,
    NULL::UBIGINT AS loose,
    true AS is_read
FROM given

-- name: keys_of_number
-- Grain: one row per row of `given`. Five decimals count, since frames may hold 32 bits; NaN is NULL.
-- A decimal comma is read, except before three digits, where it may also divide thousands.
-- Parameters: none. Run twice: the same rows.
SELECT
    * EXCLUDE (value, number),
    CASE WHEN number IS NULL OR isnan(number)
        THEN 0::UBIGINT
        ELSE hash(round(number, 5) + 0.0)
    END AS key,
    NULL::UBIGINT AS loose,
    CASE WHEN number IS NULL
        THEN coalesce(trim(value::VARCHAR), '') = ''
        ELSE NOT isinf(number)
    END AS is_read
FROM (
    SELECT
        *,
        coalesce(
            TRY_CAST(value AS DOUBLE),
            TRY_CAST(regexp_replace(
                value::VARCHAR, '^\s*([+-]?\d+),(\d{1,2}|\d{4,})\s*$', '\1.\2'
            ) AS DOUBLE)
        ) AS number
    FROM given
)

-- name: keys_of_boolean
-- Grain: one row per row of `given`.
-- Parameters: none. Run twice: the same rows.
SELECT
    * EXCLUDE (value, text, found),
    coalesce(hash(found), 0::UBIGINT) AS key,
    NULL::UBIGINT AS loose,
    text IS NULL OR found IS NOT NULL AS is_read
FROM (
    SELECT
        *,
        nullif(lower(trim(value::VARCHAR)), '') AS text,
        CASE
            WHEN text IN ('true', 't', 'yes', 'y', '1', '1.0') THEN true
            WHEN text IN ('false', 'f', 'no', 'n', '0', '0.0') THEN false
        END AS found
    FROM given
)

-- name: keys_of_list
-- Grain: one row per row of `given`, a list joined with commas. As a set in any case; a text may
-- divide its entries with `;`, `,` or `|`, be JSON, or be what Python prints. A text may also be one
-- entry, which equals each set that has it: by its key if no value of its column is a list, or else by
-- `loose`.
-- Parameters: $form: `sets`, `texts` (with lists among them), or `entries` (without).
-- Run twice: the same rows.
SELECT
    * EXCLUDE (value, entries, whole, set_key, entry_key),
    CASE
        WHEN len(entries) = 0 THEN 0::UBIGINT
        WHEN $form = 'entries' THEN entry_key
        ELSE set_key
    END AS key,
    CASE WHEN $form = 'texts' AND len(entries) > 0 THEN entry_key END AS loose,
    true AS is_read
FROM (
    SELECT
        *,
        hash('set', array_to_string(list_sort(entries), ';')) AS set_key,
        hash('entry', whole) AS entry_key
    FROM (
        SELECT
            *,
            trim(lower(value), ' ' || chr(9) || chr(10) || chr(13)) AS whole,
            list_distinct(list_filter(
                list_transform(
                    string_split_regex(lower(coalesce(value, '')), '[\[\]{}()"'';|,]+'),
                    lambda entry: trim(entry, ' ' || chr(9) || chr(10) || chr(13))
                ),
                lambda entry: entry <> ''
            )) AS entries
        FROM given
    )
)

-- name: has_lists
-- Grain: one row: whether a text of `given` is a list, and no category with a comma in its name.
-- Parameters: none. Run twice: the same row.
SELECT coalesce(bool_or(regexp_matches(value, '[\[\]{}"'';|,]')), false) AS has_lists
FROM given
WHERE trim(lower(value)) NOT IN (
    SELECT lower(name) FROM categories
    UNION
    SELECT lower(category) FROM event_categories
    UNION
    SELECT lower(unnest(categories)) FROM event_versions
)

-- name: keys_of_entry
-- Grain: one row per row of `given`, one entry of a list, in any case.
-- Parameters: none. Run twice: the same rows.
SELECT
    * EXCLUDE (value, whole),
    if(whole <> '', hash('entry', whole), 0::UBIGINT) AS key,
    NULL::UBIGINT AS loose,
    true AS is_read
FROM (
    SELECT *, coalesce(trim(lower(value), ' ' || chr(9) || chr(10) || chr(13)), '') AS whole
    FROM given
)

-- name: known_list_keys
-- Grain: one row per row of `sets` (place and key of the set) and one per entry of it.
-- Parameters: none; `given` has the lists. Run twice: the same rows.
SELECT place, event_number, known_from, is_exact, key FROM sets
UNION ALL
SELECT DISTINCT
    place, event_number, known_from, is_exact,
    hash('entry', unnest(list_transform(value, lambda entry: trim(lower(entry))))) AS key
FROM given
