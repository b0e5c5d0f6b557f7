-- The history that the exports imply, by a window over all of them, and how far a side's differs.
--
--     create_seen → add_seen, add_contents (each export) → make_history → make_groups
--     make_list_macro → make_differing → count_differing
--
-- Placeholders: typed, columns, rows.

-- name: create_seen
-- Which content each export shows of an event. Grain: export, event.
CREATE TABLE seen (known_at TIMESTAMPTZ, event_id VARCHAR, digest UBIGINT);

-- name: create_contents
-- Grain: digest.
CREATE TABLE contents AS SELECT 0::UBIGINT AS digest, * FROM ({typed}) LIMIT 0;

-- name: read_export
-- Grain: event.
CREATE OR REPLACE TEMP TABLE export AS SELECT hash({columns}) AS digest, * FROM ({typed});

-- name: add_seen
-- Grain: event.
INSERT INTO seen SELECT $known_at, event_id, digest FROM export;

-- name: add_contents
-- Grain: event.
INSERT INTO contents FROM export WHERE digest NOT IN (SELECT digest FROM contents);

-- name: make_history
-- Grain: event, and each run of successive exports with the same content.
-- Parameters: $left_out, the time of an export that is left out.
CREATE OR REPLACE TABLE history AS
WITH numbered AS (
    SELECT known_at, row_number() OVER (ORDER BY known_at) AS number
    FROM (SELECT DISTINCT known_at FROM seen WHERE known_at IS DISTINCT FROM $left_out)
),
compared AS (
    SELECT
        event_id, digest, number,
        number = lag(number) OVER event + 1 AND digest = lag(digest) OVER event AS is_same
    FROM seen
    JOIN numbered USING (known_at)
    WINDOW event AS (PARTITION BY event_id ORDER BY number)
),
runs AS (
    SELECT event_id, digest, min(number) AS first, max(number) AS last
    FROM (
        SELECT
            *,
            count(*) FILTER (is_same IS NOT TRUE) OVER (PARTITION BY event_id ORDER BY number)
                AS run
        FROM compared
    )
    GROUP BY event_id, digest, run
)
SELECT c.* EXCLUDE (digest), f.known_at AS known_from, t.known_at AS known_to
FROM runs AS r
JOIN contents AS c USING (digest)
JOIN numbered AS f ON f.number = r.first
LEFT JOIN numbered AS t ON t.number = r.last + 1;

-- name: make_groups
-- Events by what happened to them. Grain: event.
CREATE OR REPLACE TABLE groups AS
SELECT
    event_id,
    CASE
        WHEN count(*) FILTER (known_from > ended) > 0 THEN 'returned'
        WHEN max(coalesce(known_to, 'infinity')) < 'infinity' THEN 'withdrawn'
        WHEN count(*) > count(DISTINCT date) THEN 'moved and moved back'
        WHEN count(*) > 1 THEN 'moved'
        WHEN min(known_from) > (SELECT min(known_at) FROM seen) THEN 'inserted'
        ELSE 'unchanged'
    END AS kind
FROM (
    SELECT *, lag(known_to) OVER (PARTITION BY event_id ORDER BY known_from) AS ended
    FROM history
)
GROUP BY event_id;

-- name: make_list_macro
-- A list, or a text with separators, as a sorted list.
CREATE OR REPLACE TEMP MACRO as_list(given) AS
    list_sort(string_split(replace(trim(given::VARCHAR, '[]'), ', ', ';'), ';'));

-- name: make_differing
-- Rows that only the side or only the reference has. Grain: row.
CREATE OR REPLACE TEMP TABLE differing AS
WITH side AS (SELECT {columns} FROM {rows}),
reference AS (SELECT {columns} FROM reference.history)
SELECT event_id FROM (FROM side EXCEPT ALL FROM reference)
UNION ALL
SELECT event_id FROM (FROM reference EXCEPT ALL FROM side);

-- name: count_differing
-- Rows of the reference, and differing rows. Grain: kind of event.
SELECT coalesce(g.kind, 'unknown') AS kind, sum(r.rows), sum(d.rows)
FROM reference.groups AS g
JOIN (SELECT event_id, count(*) AS rows FROM reference.history GROUP BY ALL) AS r USING (event_id)
FULL JOIN (SELECT event_id, count(*) AS rows FROM differing GROUP BY ALL) AS d USING (event_id)
GROUP BY ALL;

-- name: rows_of_dbt
-- Grain: event, span.
SELECT * RENAME (dbt_valid_from AS known_from, dbt_valid_to AS known_to) FROM events;

-- name: rows_of_almanac
-- Scheduled versions, without the time in which exports did not show the event. Grain: event, span.
WITH scheduled AS (
    FROM event_versions WHERE status = 'scheduled' AND known_from IS DISTINCT FROM known_to
),
ends AS (
    SELECT event_id, known_to AS ended FROM scheduled WHERE known_to IS NOT NULL
    UNION ALL
    SELECT event_id, changed_at FROM event_absences WHERE missing_since IS NOT NULL
),
begins AS (
    SELECT *, known_from AS begun FROM scheduled
    UNION ALL
    SELECT s.*, a.changed_at
    FROM event_absences AS a
    JOIN scheduled AS s USING (event_id)
    WHERE a.missing_since IS NULL
        AND a.changed_at > s.known_from AND (a.changed_at < s.known_to OR s.known_to IS NULL)
)
SELECT b.* REPLACE (b.begun AS known_from, e.ended AS known_to)
FROM begins AS b
ASOF LEFT JOIN ends AS e ON e.event_id = b.event_id AND e.ended > b.begun;
