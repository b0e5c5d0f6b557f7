-- Values that equal nothing that was ever known, and are nearly what was known: a score with fewer
-- decimals, a time of the same day, a title in other letters. One that is near a later value alone is
-- look-ahead. Also the days until a date, which follow from the decision as well.
--
--     findings (never_known) ─▶ near_instant | near_number | near_text | near_list ─▶ near_findings
--     days_read ─▶ days_findings
--
-- `uses` has the value used (`value`), `spans` a row per version with what it says (`value`).

-- name: near_instant
-- Grain: one row per row of `uses` (instant, is_day, midnight: as read_* gives them) and version with
-- an instant of the same day, in UTC or as written, or at most 14 hours away, the largest offset of a
-- zone. Where some are less than an hour away, the others do not count. A date alone has been compared
-- as a day already.
-- Parameters: none. Run twice: the same rows.
SELECT u.use, s.place, s.known_from, s.is_exact
FROM (SELECT *, epoch_us(instant) AS instant_us FROM uses) AS u
JOIN (SELECT *, epoch_us(value) AS value_us FROM spans) AS s ON s.event_number = u.event_number
WHERE NOT u.is_day
    AND (
        (s.value AT TIME ZONE 'UTC')::DATE IN ((u.instant AT TIME ZONE 'UTC')::DATE, u.midnight)
        OR (u.midnight IS NULL AND abs(s.value_us - u.instant_us) <= 50400000000)
    )
QUALIFY abs(s.value_us - u.instant_us) < 3600000000
    OR min(abs(s.value_us - u.instant_us)) OVER (PARTITION BY u.use) >= 3600000000

-- name: near_number
-- Grain: one row per row of `uses` and version whose number differs by less than one in the last
-- decimal of the number used, or by less than 0.01: it may have been rounded or cut.
-- Parameters: none. Run twice: the same rows.
SELECT u.use, s.place, s.known_from, s.is_exact
FROM (
    SELECT
        *,
        TRY_CAST(replace(trim(value::VARCHAR), ',', '.') AS DOUBLE) AS number,
        length(rtrim(split_part(format('{:.5f}', number), '.', 2), '0')) AS decimals
    FROM uses
) AS u
JOIN spans AS s ON s.event_number = u.event_number
WHERE abs(s.value - u.number) < greatest(pow(10, -u.decimals), 0.01) - 1e-6

-- name: most_decimals
-- Grain: one row: the most decimals, up to five, of a number in `given` (value).
-- Parameters: none. Run twice: the same row.
SELECT coalesce(max(length(rtrim(split_part(format('{:.5f}', number), '.', 2), '0'))), 0) AS decimals
FROM (SELECT TRY_CAST(replace(trim(value::VARCHAR), ',', '.') AS DOUBLE) AS number FROM given)

-- name: rounded_findings
-- Grain: one row per row of `findings`. A number that a later version has may also be what was known
-- at the decision, rounded as the numbers of its column are: then it is no look-ahead.
-- Parameters: $later, the verdict of a value known later; $decimals of the column.
-- Run twice: the same rows, in any order.
SELECT
    f.* REPLACE (
        if(r.use IS NULL, f.verdict, 'close_to_known') AS verdict,
        if(r.use IS NULL, f.knowable_from, NULL) AS knowable_from
    )
FROM findings AS f
LEFT JOIN (
    SELECT u.use
    FROM uses AS u
    JOIN spans AS s ON s.place = u.place
    WHERE abs(s.value - TRY_CAST(replace(trim(u.value::VARCHAR), ',', '.') AS DOUBLE))
        <= 0.5 * pow(10, -$decimals) + 1e-6
) AS r ON r.use = f.use AND f.verdict = $later

-- name: near_text
-- Grain: one row per row of `uses` and version whose text has the same letters and digits, without
-- case and accents, or begins with at least eight of them that were used. One `l` stands for two:
-- canceled, cancelled.
-- Parameters: none. Run twice: the same rows.
WITH folded_uses AS (
    SELECT
        use, event_number,
        replace(
            regexp_replace(strip_accents(lower(value)), '[^\p{L}\p{N}]+', '', 'g'), 'll', 'l'
        ) AS folded
    FROM uses
),
folded_spans AS (
    SELECT
        event_number, place, known_from, is_exact,
        replace(
            regexp_replace(strip_accents(lower(value)), '[^\p{L}\p{N}]+', '', 'g'), 'll', 'l'
        ) AS folded
    FROM spans
)
SELECT u.use, s.place, s.known_from, s.is_exact
FROM folded_uses AS u
JOIN folded_spans AS s ON s.event_number = u.event_number
WHERE u.folded <> ''
    AND (s.folded = u.folded OR (length(u.folded) >= 8 AND starts_with(s.folded, u.folded)))

-- name: near_list
-- Grain: one row per row of `uses` (a list joined with commas) and version whose list has every entry
-- used, without case and marks.
-- Parameters: none. Run twice: the same rows.
WITH folded_uses AS (
    SELECT
        use, event_number,
        list_filter(
            list_transform(
                string_split_regex(strip_accents(lower(value)), '[\[\]{}()"'';|,]+'),
                lambda entry: regexp_replace(entry, '[^\p{L}\p{N}]+', '', 'g')
            ),
            lambda entry: entry <> ''
        ) AS folded
    FROM uses
),
folded_spans AS (
    SELECT
        event_number, place, known_from, is_exact,
        list_transform(
            string_split_regex(
                strip_accents(lower(array_to_string(value, ','))), '[\[\]{}()"'';|,]+'
            ),
            lambda entry: regexp_replace(entry, '[^\p{L}\p{N}]+', '', 'g')
        ) AS folded
    FROM spans
)
SELECT u.use, s.place, s.known_from, s.is_exact
FROM folded_uses AS u
JOIN folded_spans AS s ON s.event_number = u.event_number
WHERE len(u.folded) > 0 AND list_has_all(s.folded, u.folded)

-- name: near_findings
-- Grain: one row per row of `findings`, those with a row in `near` judged by it. What is near a date
-- that was only a deadline at the decision has the verdict that the date itself would have.
-- Parameters: none. Run twice: the same rows, in any order.
SELECT
    f.* REPLACE (
        CASE
            WHEN n.use IS NULL THEN f.verdict
            WHEN n.is_known THEN 'close_to_known'
            WHEN n.is_estimated AND n.is_period IS NULL THEN 'unknown_precision'
            WHEN n.is_estimated THEN 'estimated_as_exact'
            WHEN n.was_any THEN 'close_to_known'
            ELSE 'close_to_later'
        END AS verdict,
        CASE
            WHEN n.use IS NULL OR n.is_known THEN f.knowable_from
            WHEN (n.is_estimated AND n.is_period IS NOT NULL) OR NOT n.was_any THEN n.knowable_from
        END AS knowable_from
    )
FROM findings AS f
LEFT JOIN (
    SELECT
        u.use, any_value(u.is_period) AS is_period,
        bool_or(n.known_from <= u.decided_at AND (n.is_exact OR u.is_period)) AS is_known,
        bool_or(n.place = u.place AND NOT coalesce(n.is_exact OR u.is_period, false))
            AS is_estimated,
        bool_or(n.known_from <= u.decided_at) AS was_any,
        min(n.known_from) FILTER (n.known_from > u.decided_at) AS knowable_from
    FROM near AS n
    JOIN uses AS u ON u.use = n.use
    GROUP BY u.use
) AS n ON n.use = f.use

-- name: days_read
-- Grain: one row per row of `given`, its value as a number of days: a number, or a time such as
-- `18 days 14:00:00`. number is NULL if it is empty, or can't be read.
-- Parameters: none. Run twice: the same rows.
SELECT
    * EXCLUDE (value, text),
    coalesce(TRY_CAST(text AS DOUBLE), epoch(TRY_CAST(text AS INTERVAL)) / 86400) AS found,
    if(isnan(found), NULL, found) AS number,
    text IS NULL OR found IS NOT NULL AS is_read,
    length(regexp_extract(text, '\.(\d*?)0*$', 1)) AS decimals
FROM (SELECT *, nullif(trim(value::VARCHAR), '') AS text FROM given)

-- name: days_findings
-- Grain: one row per row of `uses` (as days_read) whose number is not the days from its decision to the
-- date that its version has: as days_until of the warehouse has them (whole UTC days to a day, else
-- with a fraction), or loosely the whole days of the calendar, whole days cut, or the fraction up to
-- the first instant of a day.
-- Parameters: $field; $later; $last_pull_at. Run twice: the same rows, in any order.
SELECT
    use, index, slug, place, $field AS field,
    CASE
        WHEN NOT is_read THEN 'unreadable'
        WHEN is_strictly_known OR (is_known AND NOT coalesce(is_strictly_later, false)) THEN 'clean'
        WHEN is_known THEN 'close_to_known'
        WHEN is_estimated AND is_period IS NULL THEN 'unknown_precision'
        WHEN is_estimated THEN 'estimated_as_exact'
        WHEN was_known THEN 'outdated'
        WHEN is_later THEN $later
        WHEN is_near_known THEN 'close_to_known'
        WHEN is_near_later THEN 'close_to_later'
        WHEN decided_at > $last_pull_at THEN 'after_last_pull'
        ELSE 'never_known'
    END AS verdict,
    CASE WHEN verdict IN ($later, 'close_to_later', 'estimated_as_exact')
        THEN knowable_from
    END AS knowable_from
FROM (
    SELECT
        use, any_value(index) AS index, any_value(slug) AS slug, any_value(now_place) AS place,
        any_value(is_read) AS is_read, any_value(decided_at) AS decided_at,
        any_value(is_period) AS is_period,
        bool_or(is_then AND is_taken AND is_strict) AS is_strictly_known,
        bool_or(is_then AND is_taken AND is_equal) AS is_known,
        bool_or(is_then AND is_equal) AS is_estimated,
        bool_or(is_before AND is_equal) AS was_known,
        bool_or(NOT is_before AND is_strict) AS is_strictly_later,
        bool_or(NOT is_before AND is_equal) AS is_later,
        bool_or(is_before AND is_near) AS is_near_known,
        bool_or(NOT is_before AND is_near) AS is_near_later,
        min(known_from) FILTER (NOT is_before AND (is_equal OR is_near)) AS knowable_from
    FROM (
        SELECT
            u.use, u.index, u.slug, u.place AS now_place, u.is_read, u.decided_at, u.is_period,
            s.known_from,
            s.place = u.place AS is_then,
            s.known_from <= u.decided_at AS is_before,
            s.is_exact OR u.is_period AS is_taken,
            (epoch_us(s.value) - epoch_us(u.decided_at)) / 86400e6 AS fraction,
            date_diff(
                'day', (u.decided_at AT TIME ZONE 'UTC')::DATE, (s.value AT TIME ZONE 'UTC')::DATE
            ) AS whole,
            abs(
                u.number - if(epoch_us(s.value) % 86400000000 = 0, whole, fraction)
            ) < 1e-4 AS is_strict,
            is_strict OR abs(u.number - fraction) < 1e-4
                OR u.number IN (whole, floor(fraction)) AS is_equal,
            abs(u.number - fraction) < pow(10, -least(u.decimals, 4)) AS is_near
        FROM uses AS u
        LEFT JOIN spans AS s ON s.event_number = u.event_number
        WHERE u.number IS NOT NULL OR NOT u.is_read
    )
    GROUP BY use
)
WHERE verdict <> 'clean'
