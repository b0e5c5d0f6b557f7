-- The events that a rule selects at each decision, against those that the table has. Instants are
-- microseconds since 1970 UTC, so that no zone of a session plays a part.
--
--     event_versions, event_claims, event_absences ─▶ selected_spans ─▶ absent_events
--                                                                    └▶ unselected_rows

-- name: selected_spans
-- Grain: one row per version of an event that was known at some time: what it says, and the time
-- [from_us, to_us) in which it was known. is_selected: it passes the filters of the rule; if so,
-- starts_us and ends_us (exclusive) are the part of that time in which the rule selects it. `within`:
-- the event begins later, at most $within_us after the decision, a day at the latest at its end.
-- `lead`: the decision is on the UTC day of the instant $lead_us before the date; due_us is that
-- instant. Only exact dates are selected.
-- Parameters: $within_us or $lead_us, the other NULL; $claimed; $coins, $categories (in small letters),
-- $statuses, lists or NULL; $min_impact, $bands as in events. Run twice: the same rows.
SELECT
    event_id, title, date, status, impact, from_us, to_us,
    epoch_us(date) - $lead_us::BIGINT AS due_us,
    coalesce(
        date_precision IN ('instant', 'day')
        AND ($statuses::VARCHAR[] IS NULL OR list_contains($statuses::VARCHAR[], status))
        AND {shared_has_filters},
        false
    ) AS is_selected,
    greatest(
        from_us,
        CASE WHEN $lead_us::BIGINT IS NULL
            THEN epoch_us(date) - $within_us::BIGINT
            ELSE due_us - due_us % 86400000000
        END
    ) AS starts_us,
    least(
        to_us,
        CASE WHEN $lead_us::BIGINT IS NULL
            THEN epoch_us(date) + CASE date_precision WHEN 'day' THEN 86400000000 ELSE 0 END
            ELSE due_us - due_us % 86400000000 + 86400000000
        END
    ) AS ends_us
FROM (
    SELECT
        event_id, title, date, date_precision, status, coins, categories, impact, impact_band,
        epoch_us(known_from) AS from_us,
        coalesce(epoch_us(known_to), 9223372036854775807) AS to_us
    FROM event_versions
    WHERE known_to IS DISTINCT FROM known_from
    UNION ALL
    SELECT
        event_id, title, date, date_precision, status, coins, categories, impact, impact_band,
        epoch_us(known_from), epoch_us(known_to)
    FROM event_claims
    WHERE $claimed AND known_to > known_from
)

-- name: absent_events
-- Grain: one row per decision and event that the rule selects then and the table lacks. With a lead,
-- the decision is the instant before the date, from the first UTC day of the table to its last. An
-- event that was missing from the pulls at the decision is none.
-- Parameters: the frames spans, decisions (at_us), pairs (event_id, at_us); $is_lead.
-- Run twice: the same rows.
WITH selected AS (
    SELECT d.at_us, s.event_id, s.title, s.date, s.status, s.impact
    FROM decisions AS d
    JOIN spans AS s ON s.starts_us <= d.at_us AND s.ends_us > d.at_us
    WHERE s.is_selected AND NOT $is_lead
    UNION ALL
    SELECT s.due_us, s.event_id, s.title, s.date, s.status, s.impact
    FROM spans AS s
    JOIN (SELECT min(at_us) AS first_us, max(at_us) AS last_us FROM decisions) AS d
        ON s.due_us >= d.first_us - d.first_us % 86400000000
        AND s.due_us < d.last_us - d.last_us % 86400000000 + 86400000000
    WHERE $is_lead AND s.is_selected AND s.from_us <= s.due_us AND s.to_us > s.due_us
)
SELECT
    'absent' AS problem,
    make_timestamp(s.at_us) AT TIME ZONE 'UTC' AS decided_at,
    s.event_id, s.title, s.date, s.status, s.impact
FROM selected AS s
ANTI JOIN (
    SELECT DISTINCT event_id, if($is_lead, at_us // 86400000000, at_us) AS place FROM pairs
) AS p
    ON p.event_id = s.event_id
    AND p.place = if($is_lead, s.at_us // 86400000000, s.at_us)
ASOF LEFT JOIN (
    SELECT event_id, epoch_us(changed_at) AS changed_us, missing_since FROM event_absences
) AS a ON a.event_id = s.event_id AND a.changed_us <= s.at_us
WHERE a.missing_since IS NULL

-- name: unselected_rows
-- Grain: one row per decision and event of the table that was known then and that the rule does not
-- select then.
-- Parameters: the frames spans, pairs (event_id, at_us). Run twice: the same rows.
SELECT
    'not_selected' AS problem,
    make_timestamp(p.at_us) AT TIME ZONE 'UTC' AS decided_at,
    p.event_id, s.title, s.date, s.status, s.impact
FROM pairs AS p
JOIN spans AS s ON s.event_id = p.event_id AND s.from_us <= p.at_us AND s.to_us > p.at_us
WHERE NOT s.is_selected OR s.starts_us > p.at_us OR s.ends_us <= p.at_us

-- name: universe_problems
-- Grain: one row per row of the frame `problems`, with what became known of its event later: kinds of
-- change, joined with commas. In the order of decisions.
-- Parameters: none. Run twice: the same rows.
SELECT
    p.problem, p.decided_at, p.event_id, p.title, p.date, p.status, p.impact,
    coalesce((
        SELECT array_to_string(list_sort(list_distinct(flatten(list(v.change_kinds)))), ', ')
        FROM event_versions AS v
        WHERE v.event_id = p.event_id AND v.known_from > p.decided_at
    ), '') AS changed_later
FROM problems AS p
ORDER BY p.decided_at, p.event_id, p.problem
