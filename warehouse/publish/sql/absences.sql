-- Since when events were missing, and until when.
--
--     select_event_absences → check_absences

-- name: select_event_absences
-- Grain: one row per event and instant at which `missing_since` changed. Of several changes at one
-- instant the last counts; an event that was found at the instant at which it became missing has no
-- row.
-- Parameters: $absences, the files of the days. Run twice: the same rows.
-- The day is in the name of the innermost folder; the names of the folders above do not matter.
SELECT
    regexp_extract(filename, 'observed_date=([0-9-]+)/[^/]+$', 1)::DATE AS observed_date,
    event_id,
    changed_at,
    last(missing_since ORDER BY place) AS missing_since,
    last(batch_id ORDER BY place) AS batch_id
FROM read_parquet($absences, hive_partitioning = false, filename = true)
GROUP BY filename, event_id, changed_at
HAVING last(missing_since ORDER BY place) IS NOT NULL
    OR first(missing_since ORDER BY place) IS NULL

-- name: check_absences
-- Grain: one row per event whose last change of `missing_since` is not that of the event, three at
-- most. Parameters: none. Run twice: the same rows.
SELECT coalesce(e.event_id, a.event_id) AS event_id
FROM (SELECT event_id, missing_since FROM events WHERE missing_since IS NOT NULL) AS e
FULL JOIN (
    SELECT event_id, last(missing_since ORDER BY changed_at) AS missing_since
    FROM event_absences
    GROUP BY event_id
    HAVING last(missing_since ORDER BY changed_at) IS NOT NULL
) AS a ON a.event_id = e.event_id
WHERE a.missing_since IS DISTINCT FROM e.missing_since
ORDER BY 1
LIMIT 3
