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
SELECT DISTINCT version, move, shift_days, least_shift_days, most_shift_days
FROM page_changes
WHERE event_id = $event_id AND known_from <= $at::TIMESTAMPTZ AND move IS NOT NULL

-- name: event_absences_known
-- Grain: one row per start or end of an absence of the event $event_id that was known at $at, oldest
-- first. Parameters: $event_id, $at. Run twice: the same rows.
SELECT changed_at, missing_since
FROM event_absences
WHERE event_id = $event_id AND changed_at <= $at::TIMESTAMPTZ
ORDER BY changed_at

-- name: event_neighbours
-- Grain: one row per coin of $coins: the exact events of the coin before and after the event $event_id.
-- NULL where there is none.
-- Parameters: $event_id; $earliest, its first moment; $coins. Run twice: the same rows.
SELECT
    coin,
    arg_max(event, place) FILTER (WHERE place < row($earliest::TIMESTAMPTZ, $event_id::VARCHAR)) AS before,
    arg_min(event, place) FILTER (WHERE place > row($earliest::TIMESTAMPTZ, $event_id::VARCHAR)) AS after
FROM (
    SELECT
        coin,
        {'event_id': event_id, 'title': title, 'displayed_date_full': displayed_date_full} AS event,
        row(earliest, event_id) AS place
    FROM page_coin_events
    WHERE coin IN (SELECT unnest($coins::VARCHAR[]))
        AND is_exact
        AND status = 'scheduled'
        AND missing_since IS NULL
)
GROUP BY coin
