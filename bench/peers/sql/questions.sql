-- The questions, for a table of rows with `known_from` and `known_to`.
--
-- Placeholders: rows, columns.

-- name: as_of
-- Grain: event that was known and not withdrawn.
SELECT {columns} FROM {rows} WHERE known_from <= $at AND (known_to > $at OR known_to IS NULL);

-- name: as_of_almanac
-- Grain: event.
SELECT {columns} FROM events_as_of($at) WHERE status = 'scheduled' AND missing_since IS NULL;

-- name: history
-- Grain: version of one event.
SELECT * FROM {rows} WHERE event_id = $event_id ORDER BY known_from;

-- name: changes
-- Rows that began after $since, until $until, with the date before. Grain: row.
SELECT new.*, old.date AS old_date, if(old.date IS NULL, 'created', 'rescheduled') AS kind
FROM {rows} AS new
LEFT JOIN {rows} AS old ON old.event_id = new.event_id AND old.known_to = new.known_from
WHERE new.known_from > $since AND new.known_from <= $until;

-- name: choose_event
-- An event of the reference with most versions, always shown. Grain: one row.
SELECT event_id
FROM reference.history
JOIN reference.groups USING (event_id)
WHERE kind = 'moved and moved back' OR kind = 'moved'
GROUP BY event_id
ORDER BY count(*) DESC, event_id
LIMIT 1;

-- name: shown_as_of
-- The part of an answer that all sides have. Grain: event.
SELECT event_id, title, date FROM given;

-- name: expected_as_of
-- Grain: event.
SELECT event_id, title, date FROM reference.history
WHERE known_from <= $at AND (known_to > $at OR known_to IS NULL);

-- name: shown_history
-- Grain: version.
SELECT event_id, known_from, date FROM given;

-- name: expected_history
-- Grain: version.
SELECT event_id, known_from, date FROM reference.history WHERE event_id = $event_id;

-- name: shown_changes
-- Moves of events that never were away. Grain: move.
SELECT event_id, known_from FROM given JOIN reference.groups AS g USING (event_id)
WHERE given.kind = 'rescheduled' AND g.kind <> 'returned';

-- name: expected_changes
-- Grain: move.
SELECT new.event_id, new.known_from
FROM reference.history AS new
JOIN reference.history AS old ON old.event_id = new.event_id AND old.known_to = new.known_from
JOIN reference.groups AS g ON g.event_id = new.event_id AND g.kind <> 'returned'
WHERE new.known_from > $since AND new.known_from <= $until;

-- name: count_unexpected
-- Grain: one row.
SELECT count(*) FROM (
    (FROM shown EXCEPT ALL FROM expected) UNION ALL (FROM expected EXCEPT ALL FROM shown)
);
