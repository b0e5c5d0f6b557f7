-- name: view_reschedules
-- Grain: one row per version with another date, end or interval than the version before it. Of the
-- versions of one instant only the last was ever known, and counts.
-- A field that was unknown before did not change: it became known.
SELECT
    event_id, title, coins, categories, impact, impact_band, version, known_from,
    _almanac.move_kind(
        old_date, old_date_precision, old_earliest, old_begins_by,
        new_date, new_date_precision, new_earliest, new_begins_by
    ) AS kind,
    old_displayed_date, new_displayed_date, old_displayed_date_full, new_displayed_date_full,
    _almanac.date_exact(old_date, old_date_precision) AS old_date_exact,
    _almanac.date_exact(new_date, new_date_precision) AS new_date_exact,
    old_date_precision, new_date_precision, old_earliest, new_earliest, old_latest, new_latest,
    CASE WHEN both_instant THEN _almanac.shift(old_date, new_date) ELSE least_days END
        AS least_shift_days,
    CASE WHEN both_instant THEN _almanac.shift(old_date, new_date) ELSE most_days END
        AS most_shift_days,
    CASE
        WHEN both_instant THEN _almanac.shift(old_date, new_date)
        WHEN least_days = most_days THEN least_days
        WHEN old_date_precision <> new_date_precision THEN NULL
        WHEN new_date_precision = 'deadline' THEN _almanac.shift(old_begins_by, new_begins_by)
        ELSE _almanac.shift(old_earliest, new_earliest)
    END AS shift_days,
    _almanac.least_lead(old_date, old_date_precision, old_earliest, old_begins_by, known_from)
        AS least_lead_days,
    _almanac.most_lead(old_date, old_date_precision, old_begins_by, known_from) AS most_lead_days,
    _almanac.days_until(old_date, old_date_precision, known_from)::DOUBLE AS lead_days
FROM (
    SELECT
        *,
        coalesce(old_date_precision = 'instant' AND new_date_precision = 'instant', false)
            AS both_instant,
        (
            _almanac.first_day(new_date, new_date_precision, new_earliest, known_from)
            - _almanac.end_day(old_date, old_date_precision, old_begins_by)
        )::DOUBLE AS least_days,
        (
            _almanac.end_day(new_date, new_date_precision, new_begins_by)
            - _almanac.first_day(old_date, old_date_precision, old_earliest, known_from)
        )::DOUBLE AS most_days
    FROM (
        SELECT
            new.event_id,
            new.title,
            new.coins,
            new.categories,
            new.impact,
            new.impact_band,
            new.version,
            new.known_from,
            old.displayed_date AS old_displayed_date,
            new.displayed_date AS new_displayed_date,
            old.displayed_date_full AS old_displayed_date_full,
            new.displayed_date_full AS new_displayed_date_full,
            old.date AS old_date,
            new.date AS new_date,
            old.date_precision AS old_date_precision,
            new.date_precision AS new_date_precision,
            old.earliest AS old_earliest,
            new.earliest AS new_earliest,
            old.latest AS old_latest,
            new.latest AS new_latest,
            _almanac.begins_by(old.date, old.date_precision, old.earliest) AS old_begins_by,
            _almanac.begins_by(new.date, new.date_precision, new.earliest) AS new_begins_by
        FROM event_versions AS new
        JOIN state.ended_versions AS old
            ON old.event_id = new.event_id
            AND old.known_to = new.known_from
            AND old.known_from < old.known_to
        WHERE _almanac.was_known(new.known_from, new.known_to)
            AND (
            (
                new.date IS DISTINCT FROM old.date
                AND NOT list_contains(old.unknown_fields, 'date')
            )
            OR (
                new.date_end IS DISTINCT FROM old.date_end
                AND NOT list_contains(old.unknown_fields, 'date_end')
            )
            OR (
                (
                    new.earliest IS DISTINCT FROM old.earliest
                    OR new.latest IS DISTINCT FROM old.latest
                )
                AND (
                    (
                        new.date_type IS DISTINCT FROM old.date_type
                        AND NOT list_contains(old.unknown_fields, 'date_type')
                    )
                    OR (
                        new.is_estimated IS DISTINCT FROM old.is_estimated
                        AND NOT list_contains(old.unknown_fields, 'is_estimated')
                    )
                )
            )
            )
    )
)
