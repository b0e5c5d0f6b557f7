-- Facts stored in a published file, and the checks before readers see it.
--
--     list_facts, list_published_chain      of the file that is published
--     forget_facts → note_facts             of the one being made
--     check_versions, check_counts          before it takes its name
--     list_facts, list_published_chain, list_batches_of_days    for `almanac status`

-- name: list_facts
-- Grain: one row per fact. An error if the file has none, or an older Almanac made it.
-- Parameters: none. Run twice: the same rows.
SELECT name, value FROM _almanac.facts

-- name: list_published_chain
-- Grain: one row per day of the change log that was published, oldest first.
-- Parameters: none. Run twice: the same rows.
SELECT day, sha256 FROM _almanac.published ORDER BY day

-- name: list_batches_of_days
-- Grain: one row per published batch that was observed on one of $days: its id.
-- Parameters: $days. Run twice: the same rows.
SELECT batch_id FROM batches WHERE observed_date IN (SELECT unnest($days)) ORDER BY batch_id

-- name: forget_facts
-- Grain: one row per fact.
-- Parameters: $names. Run twice: changes nothing.
DELETE FROM _almanac.facts WHERE list_contains($names, name)

-- name: note_facts
-- Grain: one row per fact, in place of the one of that name.
-- Parameters: $names, $values. Run twice: two rows for each; forget_facts runs before.
INSERT INTO _almanac.facts SELECT unnest($names), unnest($values)

-- name: check_versions
-- Grain: one row per event that breaks a rule, three at most: its versions are numbered without gap
-- or repetition from 1 on, begin before they end, and one is current; the event has the number
-- of the current one.
-- Parameters: $everything; else only the events in `touched`, and their `version_starts`.
-- Run twice: the same rows.
SELECT
    coalesce(e.event_id, v.event_id) AS event_id,
    e.rows AS events,
    e.version AS version,
    v.rows AS versions,
    v.first AS first_version,
    v.last AS last_version,
    v.current AS current_versions
FROM (
    SELECT event_id, count(*) AS rows, max(version) AS version
    FROM events
    WHERE $everything OR event_id IN (SELECT event_id FROM touched)
    GROUP BY event_id
) AS e
FULL JOIN (
    SELECT
        event_id,
        count(*) AS rows,
        min(version) AS first,
        max(version) AS last,
        count(*) FILTER (known_to IS NULL) AS current,
        count(*) FILTER (known_to < known_from) AS reversed
    FROM event_versions
    -- The versions of touched events, found by their places: a third of the time.
    WHERE $everything OR rowid IN (SELECT place FROM version_starts)
    GROUP BY event_id
) AS v ON v.event_id = e.event_id
WHERE e.rows IS DISTINCT FROM 1
    OR e.version IS DISTINCT FROM v.last
    OR v.first <> 1
    OR v.rows <> v.last
    OR v.current <> 1
    OR v.reversed > 0
ORDER BY 1
LIMIT 3

-- name: check_counts
-- Grain: one row, with how many events and versions there are, and how many there should be.
-- Parameters: $seen, a file of the checkpoint. Run twice: the same row.
SELECT
    (SELECT count(*) FROM events),
    (SELECT num_rows FROM parquet_file_metadata($seen)),
    (SELECT count(*) FROM event_versions),
    (SELECT coalesce(sum(versions), 0) FROM _almanac.published)
