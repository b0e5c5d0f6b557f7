-- name: view_changes
-- Grain: one row per observed version and kind of change.
SELECT
    event_id,
    title,
    coins,
    version,
    known_from,
    kind,
    CASE
        WHEN kind IN ('rescheduled', 'made_exact', 'made_estimated') THEN old_date
        WHEN kind = 'rescored' THEN old_score
        WHEN kind IN ('cancelled', 'withdrawn', 'restored') THEN old_status
    END AS old_value,
    CASE
        WHEN kind IN ('rescheduled', 'made_exact', 'made_estimated') THEN new_date
        WHEN kind = 'rescored' THEN new_score
        WHEN kind IN ('cancelled', 'withdrawn', 'restored') THEN new_status
        ELSE nullif(array_to_string(changed_fields, ', '), '')
    END AS new_value,
    impact,
    impact_band
FROM (
    SELECT
        new.event_id,
        new.title,
        new.coins,
        new.version,
        new.known_from,
        unnest(new.change_kinds) AS kind,
        old.displayed_date_full AS old_date,
        new.displayed_date_full AS new_date,
        coalesce(old.impact::VARCHAR, old.impact_band) AS old_score,
        coalesce(new.impact::VARCHAR, new.impact_band) AS new_score,
        old.status AS old_status,
        new.status AS new_status,
        new.changed_fields,
        new.impact,
        new.impact_band
    FROM event_versions AS new
    LEFT JOIN state.ended_versions AS old
        ON old.event_id = new.event_id AND old.version = new.version - 1
)

-- name: macro_changes_since
-- Grain: one row per observed version that became known after the instant `ts` and kind of change.
-- An error for an instant without an answer, as events_as_of.
-- Parameters: ts, an instant as in events_as_of.
CREATE MACRO changes_since(ts) AS TABLE
SELECT
    event_id, title, coins, version, known_from, kind, old_value, new_value, impact, impact_band
FROM changes
WHERE known_from > _almanac.instant(ts)
UNION ALL
SELECT
    event_id, title, coins, version, known_from, feed, plan, feed, impact, impact_band
FROM event_versions,
    (
        SELECT _almanac.refused('changes_since', 'events', ts, moment, first_at, last_at, '') AS is_wrong
        FROM (SELECT *, _almanac.instant(ts) AS moment FROM _almanac.first_look)
    ) AS checked
WHERE checked.is_wrong
