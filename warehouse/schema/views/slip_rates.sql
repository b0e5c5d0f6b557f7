-- What became of the events that were upcoming at an instant, within a horizon.

-- name: macro_span
-- Grain: a macro of one value, an interval; NULL for a text that is none, or may be another: M is a
-- month for pandas, and a minute for DuckDB, which takes a number without a unit for seconds.
-- Parameters: given, an interval or a text.
CREATE MACRO _almanac.span(given) AS CASE
    WHEN typeof(given) <> 'INTERVAL' AND (
        regexp_matches(given::VARCHAR, '\d\s*M(\s|\d|$)')
        OR regexp_full_match(given::VARCHAR, '[^:]*\d\s*')
    )
        THEN NULL
    ELSE TRY_CAST(given AS INTERVAL)
END

-- name: macro_no_span
-- Grain: a macro of one value, why a text is no interval.
-- Parameters: given, the text.
CREATE MACRO _almanac.no_span(given) AS
    given::VARCHAR || ' is no interval. Expected numbers with units, such as 7 days or 12 hours. '
    || 'The unit M is refused, since it may be months or minutes'

-- name: macro_after
-- Grain: a macro of one value, the instant a span after another; NULL if the span is not one.
-- Parameters: moment, as macro_instant takes it; span, an interval, or a number of days of 24 hours.
-- A month is one of the UTC calendar, whatever the zone of the session.
CREATE MACRO _almanac.after(moment, span) AS (
    (_almanac.instant(moment) AT TIME ZONE 'UTC')
    + CASE
        WHEN regexp_full_match(span::VARCHAR, '\s*-?\d+(\.\d+)?\s*')
            THEN to_microseconds((TRY_CAST(span::VARCHAR AS DOUBLE) * 86400e6)::BIGINT)
        ELSE _almanac.span(span)
    END
) AT TIME ZONE 'UTC'

-- name: macro_distance_from
-- Grain: a macro of one value, the first day of the distance band in which a number of days lies.
-- Parameters: days.
CREATE MACRO _almanac.distance_from(days) AS CASE
    WHEN days <= 7 THEN 0
    WHEN days <= 30 THEN 8
    WHEN days <= 90 THEN 31
    WHEN days <= 365 THEN 91
    ELSE 366
END

-- name: macro_slip_rates
-- Grain: one row per category, distance band and precision of the events that were upcoming at
-- `cohort_from`; category NULL has all of them.
-- Parameters: cohort_from, an instant as events_as_of takes it; horizon, an interval or days.
-- The cohort is that of upcoming_as_of. The check of the parameters returns no row. It is below the
-- grouping, which reads all rows, so that no limit of the caller can skip it, and its columns differ and
-- are no constants, so that no filter can.
CREATE MACRO slip_rates(cohort_from, horizon) AS TABLE
SELECT
    category,
    distance_from,
    CASE distance_from
        WHEN 0 THEN '0-7'
        WHEN 8 THEN '8-30'
        WHEN 31 THEN '31-90'
        WHEN 91 THEN '91-365'
        ELSE 'over 365'
    END AS distance,
    date_precision,
    count(*) AS cohort,
    count(*) FILTER (WHERE has_slipped) AS slipped,
    count(*) FILTER (WHERE was_pulled_in) AS pulled_in,
    count(*) FILTER (WHERE was_refined) AS refined,
    count(*) FILTER (WHERE was_loosened) AS loosened,
    count(*) FILTER (WHERE was_cancelled) AS cancelled,
    count(*) FILTER (WHERE was_withdrawn) AS withdrawn,
    count(*) FILTER (WHERE is_held) AS held,
    count(*) FILTER (WHERE has_slipped) / count(*) AS slipped_share,
    count(*) FILTER (WHERE was_pulled_in) / count(*) AS pulled_in_share,
    count(*) FILTER (WHERE was_refined) / count(*) AS refined_share,
    count(*) FILTER (WHERE was_loosened) / count(*) AS loosened_share,
    count(*) FILTER (WHERE was_cancelled) / count(*) AS cancelled_share,
    count(*) FILTER (WHERE was_withdrawn) / count(*) AS withdrawn_share,
    count(*) FILTER (WHERE is_held) / count(*) AS held_share
FROM (
    SELECT
        unnest(list_concat([NULL], coalesce(e.categories, []))) AS category,
        _almanac.distance_from(
            _almanac.day_of(coalesce(
                    _almanac.date_exact(e.date, e.date_precision),
                    e.latest - INTERVAL 1 MICROSECOND
                ))
            - _almanac.day_of(_almanac.instant(cohort_from))
        ) AS distance_from,
        e.date_precision,
        coalesce(m.has_slipped, false) AS has_slipped,
        coalesce(m.was_pulled_in, false) AS was_pulled_in,
        coalesce(m.was_refined, false) AS was_refined,
        coalesce(m.was_loosened, false) AS was_loosened,
        coalesce(s.was_cancelled, false) AS was_cancelled,
        coalesce(s.was_withdrawn, false) AS was_withdrawn,
        NOT coalesce(m.has_moved, false)
            AND NOT coalesce(s.was_cancelled OR s.was_withdrawn, false) AS is_held
    FROM _almanac.versions_as_of(cohort_from) AS e
    LEFT JOIN (
        SELECT
            event_id,
            bool_or(kind = 'slipped') AS has_slipped,
            bool_or(kind = 'pulled_in') AS was_pulled_in,
            bool_or(kind = 'refined') AS was_refined,
            bool_or(kind = 'loosened') AS was_loosened,
            bool_or(kind NOT IN ('time_only', 'end_only')) AS has_moved
        FROM reschedules
        WHERE known_from > _almanac.instant(cohort_from)
            AND known_from <= _almanac.after(cohort_from, horizon)
        GROUP BY event_id
    ) AS m ON m.event_id = e.event_id
    LEFT JOIN (
        SELECT
            event_id,
            bool_or(status = 'cancelled') AS was_cancelled,
            bool_or(status = 'withdrawn') AS was_withdrawn
        FROM event_versions
        WHERE known_from > _almanac.instant(cohort_from)
            AND known_from <= _almanac.after(cohort_from, horizon)
            AND _almanac.was_known(known_from, known_to)
        GROUP BY event_id
    ) AS s ON s.event_id = e.event_id
    WHERE e.status = 'scheduled'
        AND e.latest > _almanac.instant(cohort_from)
        AND e.missing_since IS NULL
    UNION ALL
    SELECT
        CASE WHEN is_wrong THEN first_at::VARCHAR END,
        CASE WHEN is_wrong THEN year(first_at)::INTEGER END,
        CASE WHEN is_wrong THEN last_at::VARCHAR END,
        is_wrong, is_wrong, is_wrong, is_wrong, is_wrong, is_wrong, is_wrong
    FROM (
        SELECT
            CASE
                WHEN _almanac.refused('slip_rates', 'events', cohort_from, moment, first_at, last_at, '')
                    THEN true
                WHEN end_at > moment AND end_at <= last_at THEN false
                ELSE error('slip_rates: the horizon ' || CASE
                    WHEN end_at > moment
                        THEN 'of ' || horizon::VARCHAR || ' ends at ' || _almanac.shown(end_at)
                            || ', after the last complete pull of events at '
                            || _almanac.shown(last_at)
                            || ', so the cohort was not observed to its end. Expected an earlier '
                            || 'cohort or a shorter horizon'
                    ELSE 'is ' || coalesce(horizon::VARCHAR, 'NULL')
                        || '; expected an interval or a number of days, above 0. '
                        || 'The unit M is refused: months or minutes'
                END)
            END AS is_wrong,
            first_at, last_at
        FROM (
            SELECT
                *, _almanac.instant(cohort_from) AS moment,
                _almanac.after(cohort_from, horizon) AS end_at
            FROM (
                SELECT min(observed_at) AS first_at, max(observed_at) AS last_at
                FROM coverage
                WHERE feed IN ('export', 'events')
            )
        )
    )
    WHERE is_wrong
)
GROUP BY category, distance_from, date_precision
