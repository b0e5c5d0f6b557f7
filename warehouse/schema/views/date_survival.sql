-- How long events keep the date that was known first.

-- name: macro_date_survival
-- Grain: one row per category, precision and number of days; category NULL has every event, precision
-- NULL every precision.
-- Parameters: ts, an instant as events_as_of takes it; days, a number above 0, or a list of them.
-- Kaplan and Meier (1958) with late entry. Age 0 is when the first date became known: the first
-- observation of an event that was created while watched; for an event that was not updated before its
-- first observation it is created_at, and the event enters at that observation. Of the others the
-- first date is not known. An event leaves its date when a version becomes known that is not scheduled
-- or whose date slipped, was pulled in or was loosened against the first. It is censored when its last
-- known date is over, when it became missing, and at the last complete pull by ts, so that what became
-- known later has no effect. An age at which nobody was at risk ends what is known of the share. The
-- interval is Greenwood's on the log-log scale.
-- The check of the parameters returns no row; why it is below the grouping: macro_slip_rates.
CREATE MACRO date_survival(ts, days := [7, 30, 90]) AS TABLE
WITH given AS (
    SELECT TRY_CAST('[' || trim(days::VARCHAR, '[]') || ']' AS DOUBLE[]) AS ages
),
pulls AS (
    SELECT
        min(observed_at) AS first_at,
        max(observed_at) AS last_at,
        max(observed_at) FILTER (observed_at <= _almanac.instant(ts)) AS last_at_ts
    FROM coverage
    WHERE feed IN ('export', 'events')
),
firsts AS (
    SELECT
        f.*,
        _almanac.begins_by(f.date, f.date_precision, f.earliest) AS begins_by,
        CASE WHEN list_contains(v.change_kinds, 'created') THEN f.known_from ELSE f.created_at END
            AS age_from
    FROM event_versions AS f
    JOIN event_versions AS v ON v.event_id = f.event_id AND v.version = 1
    WHERE f.known_from = f.first_seen_at
        AND _almanac.was_known(f.known_from, f.known_to)
        AND f.status = 'scheduled'
        AND f.date IS NOT NULL
        AND NOT list_has_any(f.unknown_fields, ['date', 'date_type', 'is_estimated'])
        AND (
            list_contains(v.change_kinds, 'created')
            OR (f.updated_at <= f.created_at AND f.created_at < f.known_from)
        )
),
ends AS (
    -- Of two ends at one instant, that of the date counts: false is less than true.
    SELECT
        event_id,
        min(CASE
            WHEN has_left THEN {'at': known_from, 'is_censored': false}
            WHEN begins_by <= known_to OR known_to IS NULL
                THEN {'at': greatest(begins_by, known_from), 'is_censored': true}
        END) AS first_end
    FROM (
        SELECT
            v.event_id, v.known_from, v.known_to,
            _almanac.begins_by(v.date, v.date_precision, v.earliest) AS begins_by,
            v.status <> 'scheduled' OR _almanac.move_kind(
                f.date, f.date_precision, f.earliest, f.begins_by,
                v.date, v.date_precision, v.earliest,
                _almanac.begins_by(v.date, v.date_precision, v.earliest)
            ) IN ('slipped', 'pulled_in', 'loosened') AS has_left
        FROM firsts AS f
        JOIN event_versions AS v ON v.event_id = f.event_id
        WHERE _almanac.was_known(v.known_from, v.known_to)
    )
    GROUP BY event_id
),
lives AS (
    SELECT
        categories, date_precision, has_left,
        (epoch_us(known_from) - epoch_us(age_from)) / 86400e6 AS entry_age,
        (epoch_us(end_at) - epoch_us(age_from)) / 86400e6 AS end_age
    FROM (
        SELECT
            f.categories, f.date_precision, f.known_from, f.age_from,
            NOT e.first_end.is_censored AND e.first_end.at <= p.last_at_ts AS has_left,
            CASE
                WHEN has_left THEN e.first_end.at
                ELSE least(e.first_end.at, p.last_at_ts, a.missing_since)
            END AS end_at
        FROM firsts AS f
        JOIN ends AS e ON e.event_id = f.event_id
        CROSS JOIN pulls AS p
        LEFT JOIN _almanac.absences_as_of(ts) AS a ON a.event_id = f.event_id
    )
    WHERE end_at > known_from
),
cells AS (
    SELECT
        category,
        unnest([NULL, date_precision]) AS date_precision,
        entry_age, end_age, has_left
    FROM (
        SELECT *, unnest(list_concat([NULL], coalesce(categories, []))) AS category FROM lives
    )
    UNION ALL
    SELECT
        CASE WHEN is_wrong THEN first_at::VARCHAR END,
        CASE WHEN is_wrong THEN last_at::VARCHAR END,
        CASE WHEN is_wrong THEN epoch(first_at) END,
        CASE WHEN is_wrong THEN epoch(last_at) END,
        is_wrong
    FROM (
        SELECT
            *,
            CASE
                WHEN len(list_filter(ages, lambda age: age > 0 AND isfinite(age))) = len(ages)
                    AND len(ages) > 0
                    THEN _almanac.refused(
                        'date_survival', 'events', ts, _almanac.instant(ts), first_at, last_at, ''
                    )
                ELSE error(
                    'date_survival: days is ' || coalesce(days::VARCHAR, 'NULL')
                    || '; expected numbers above 0, such as [7, 30, 90]'
                )
            END AS is_wrong
        FROM pulls
        CROSS JOIN given
    )
    WHERE is_wrong
),
steps AS (
    SELECT
        *,
        sum(entered - ended) OVER (PARTITION BY category, date_precision ORDER BY age) AS at_risk_after,
        at_risk_after - entered + ended AS at_risk
    FROM (
        SELECT
            category, date_precision, age,
            sum(is_entry) AS entered,
            sum(1 - is_entry) AS ended,
            sum(leaves) AS leaving
        FROM (
            SELECT
                category, date_precision,
                unnest([entry_age, end_age]) AS age,
                unnest([1, 0]) AS is_entry,
                unnest([0, has_left::INTEGER]) AS leaves
            FROM cells
        )
        GROUP BY category, date_precision, age
    )
)
SELECT
    category, date_precision, after_days, events, left_date, at_risk, share,
    share ** exp(spread) AS low,
    share ** exp(-spread) AS high
FROM (
    SELECT
        * EXCLUDE (kept, is_unwatched, greenwood),
        CASE WHEN kept = 0 OR NOT is_unwatched THEN kept END AS share,
        CASE WHEN kept > 0 AND kept < 1
            THEN 1.959963984540054 * sqrt(greenwood) / -ln(kept) END AS spread
    FROM (
        SELECT
            category, date_precision, after_days,
            sum(entered)::BIGINT AS events,
            coalesce(sum(leaving) FILTER (age <= after_days), 0)::BIGINT AS left_date,
            coalesce(sum(entered - ended) FILTER (age < after_days), 0)::BIGINT AS at_risk,
            coalesce(product(1 - leaving / at_risk) FILTER (age <= after_days AND leaving > 0), 1)
                AS kept,
            min(age) > 0 OR bool_or(at_risk_after = 0 AND age < after_days) AS is_unwatched,
            sum(leaving / (at_risk * nullif(at_risk - leaving, 0))) FILTER (age <= after_days)
                AS greenwood
        FROM steps
        CROSS JOIN (SELECT unnest(list_distinct(ages)) AS after_days FROM given)
        GROUP BY category, date_precision, after_days
    )
)
