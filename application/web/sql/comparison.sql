-- The events of some days at one time of knowledge, to be compared with another time.

-- name: list_window
-- Grain: one row per scheduled event that may take place from $starts until $ends, the soonest first, at
-- most $limit. Parameters: $starts, $ends, $day_starts, $day_ends; $ids, the events to choose from, NULL for all; $is_exact, the kind of
-- dates, NULL for both; $limit; filters as in list_events. Run twice: the same rows.
FROM page_events
WHERE gone IS NULL
    AND NOT is_former
    AND {in_days}
    AND ($ids::VARCHAR[] IS NULL OR event_id IN (SELECT unnest($ids::VARCHAR[])))
    AND ($is_exact::BOOLEAN IS NULL OR is_exact = $is_exact::BOOLEAN)
    AND {has_filters}
ORDER BY latest, event_id
LIMIT $limit

-- name: list_states
-- Grain: one row per event of $ids that was known. Parameters: $ids. Run twice: the same rows.
SELECT event_id, earliest, latest, date_precision, displayed_date_full, gone
FROM page_events
WHERE NOT is_former AND event_id IN (SELECT unnest($ids::VARCHAR[]))
