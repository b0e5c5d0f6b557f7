-- One event, as known at a time.

-- name: event_versions_known
-- Grain: one row per version of the event $event_id that was known at $at, oldest first.
-- Parameters: $event_id, $at. Run twice: the same rows.
SELECT *
FROM event_versions
WHERE event_id = $event_id AND known_from <= $at::TIMESTAMPTZ
ORDER BY version

-- name: event_moves
-- Grain: one row per version of the event $event_id that was known at $at and moved its date.
-- Parameters: $event_id, $at. Run twice: the same rows.
SELECT version, kind, shift_days, least_shift_days, most_shift_days
FROM reschedules
WHERE event_id = $event_id AND known_from <= $at::TIMESTAMPTZ

-- name: event_absences_known
-- Grain: one row per start or end of an absence of the event $event_id that was known at $at, oldest
-- first. Parameters: $event_id, $at. Run twice: the same rows.
SELECT changed_at, missing_since
FROM event_absences
WHERE event_id = $event_id AND changed_at <= $at::TIMESTAMPTZ
ORDER BY changed_at

-- name: event_neighbours
-- Grain: one row per coin of $coins: the exact events of the coin before and after the event $event_id,
-- as known at $at. NULL where there is none.
-- Parameters: $event_id, $earliest, its first moment; $coins; $at. Run twice: the same rows.
-- Of the versions alone, since the plan of events_as_of takes longer than the query.
SELECT
    coin,
    arg_max(event, place) FILTER (WHERE place < row($earliest::TIMESTAMPTZ, $event_id::VARCHAR)) AS before,
    arg_min(event, place) FILTER (WHERE place > row($earliest::TIMESTAMPTZ, $event_id::VARCHAR)) AS after
FROM (
    SELECT
        unnest(list_intersect(coins, $coins::VARCHAR[])) AS coin,
        {'event_id': event_id, 'title': title, 'displayed_date_full': displayed_date_full} AS event,
        row(earliest, event_id) AS place
    FROM event_versions
    WHERE known_from <= $at::TIMESTAMPTZ
        AND (known_to > $at::TIMESTAMPTZ OR known_to IS NULL)
        AND date_precision IN ('instant', 'day')
        AND status = 'scheduled'
        AND list_has_any(coins, $coins::VARCHAR[])
)
GROUP BY coin
ORDER BY coin
