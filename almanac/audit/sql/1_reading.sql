-- The caller's values in the form in which they are compared: a key, equal for equal values. 0 is
-- NULL. `given` has a column `value` and any others, which are kept. Values used and values known are
-- read by the same statement, but for instants and coins.
--
--     read_texts | read_naive ─▶ placed_in_zone | read_aware ─▶ keys_of_instant      instants
--     keys_of_*                                                                     other values

-- name: read_texts
-- Grain: one row per row of `given`, a text read as an instant (zoned), or as the time of day that it
-- gives (local), if it names no zone; is_day: it is a date alone. NULL if it is neither.
-- Parameters: none. Run twice: the same rows.
SELECT
    * EXCLUDE (value, text, has_zone, stamp, local),
    CASE WHEN stamp BETWEEN TIMESTAMPTZ '1900-01-01 00:00:00+00'
        AND TIMESTAMPTZ '2200-12-31 00:00:00+00' THEN stamp END AS zoned,
    CASE WHEN local BETWEEN TIMESTAMP '1900-01-01' AND TIMESTAMP '2200-12-31'
        THEN local END AS local,
    text IS NULL AS is_empty,
    length(text) <= 10 AS is_day
FROM (
    SELECT
        *,
        -- DuckDB 1.4 wants seconds before a zone.
        CASE WHEN has_zone THEN coalesce(
            TRY_CAST(text AS TIMESTAMPTZ),
            TRY_CAST(
                regexp_replace(text, '(\d[T ]\d?\d:\d\d)(\s*[A-Za-z+-])', '\1:00\2') AS TIMESTAMPTZ
            )
        ) END AS stamp,
        CASE WHEN NOT has_zone THEN TRY_CAST(text AS TIMESTAMP) END AS local
    FROM (
        SELECT
            *,
            nullif(trim(value), '') AS text,
            -- Cast to TIMESTAMP, a text would lose the zone that it names.
            coalesce(regexp_matches(
                value, '\d:\d\d(:\d\d([.,]\d*)?)?\s*([A-Za-z]|[+-]\s*\d)'
            ), false) AS has_zone
        FROM given
    )
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
    $is_day::BOOLEAN AS is_day
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
-- Grain: one row per row of `given`, a timestamp with a zone as an instant.
-- Parameters: none. Run twice: the same rows.
SELECT
    * EXCLUDE (value),
    CASE WHEN value
        BETWEEN TIMESTAMPTZ '1900-01-01 00:00:00+00' AND TIMESTAMPTZ '2200-12-31 00:00:00+00'
        THEN value::TIMESTAMPTZ
    END AS instant,
    value IS NULL AS is_empty,
    false AS is_naive,
    false AS is_day
FROM given

-- name: keys_of_instant
-- Grain: one row per row of `given`, with the key of what read_* found. A date alone is a calendar
-- day, which is compared as a day of UTC, whatever the zone $tz.
-- Parameters: $tz. Run twice: the same rows.
SELECT
    * EXCLUDE (instant, is_empty, is_naive, is_day),
    CASE
        WHEN instant IS NULL THEN 0::UBIGINT
        WHEN is_day THEN hash('day', (instant AT TIME ZONE $tz)::DATE)
        ELSE hash('instant', epoch_us(instant))
    END AS key,
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
SELECT * EXCLUDE (value), hash(value) AS key, true AS is_read FROM given

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
    true AS is_read
FROM given

-- name: keys_of_word
-- Grain: one row per row of `given`, in any case.
-- Parameters: none. Run twice: the same rows.
SELECT
    * EXCLUDE (value),
    coalesce(hash(nullif(lower(trim(value)), '')), 0::UBIGINT) AS key,
    true AS is_read
FROM given

-- name: keys_of_number
-- Grain: one row per row of `given`. Five decimals count, since frames may hold 32 bits; NaN is NULL.
-- Parameters: none. Run twice: the same rows.
SELECT
    * EXCLUDE (value, number),
    CASE WHEN number IS NULL OR isnan(number)
        THEN 0::UBIGINT
        ELSE hash(round(number, 5) + 0.0)
    END AS key,
    CASE WHEN number IS NULL
        THEN coalesce(trim(value::VARCHAR), '') = ''
        ELSE NOT isinf(number)
    END AS is_read
FROM (SELECT *, TRY_CAST(value AS DOUBLE) AS number FROM given)

-- name: keys_of_boolean
-- Grain: one row per row of `given`.
-- Parameters: none. Run twice: the same rows.
SELECT
    * EXCLUDE (value, text, found),
    coalesce(hash(found), 0::UBIGINT) AS key,
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
-- divide its entries with `;`, `,` or `|`, be JSON, or be what Python prints.
-- Parameters: none. Run twice: the same rows.
SELECT
    * EXCLUDE (value, entries),
    if(len(entries) > 0, hash(array_to_string(list_sort(entries), ';')), 0::UBIGINT) AS key,
    true AS is_read
FROM (
    SELECT
        *,
        list_distinct(list_filter(
            list_transform(
                string_split_regex(lower(coalesce(value, '')), '[\[\]{}()"'';|,]+'),
                lambda entry: trim(entry, ' ' || chr(9) || chr(10) || chr(13))
            ),
            lambda entry: entry <> ''
        )) AS entries
    FROM given
)
