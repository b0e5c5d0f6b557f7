-- The feed of changes: the order in which this home published its versions, `published_seq`.
--
--     list_shared_columns → list_versions, list_removed_before → keep_places → take_places
--     → note_removed → number_new → take_places → note_feed
--
-- The first line is of a refold of a published file.
--
-- A version that a refold makes again, with the same content, keeps its place. Any other is new, and
-- comes after all places that were ever given: a reader that continues after a place skips none.

-- name: list_shared_columns
-- The columns of versions that a file and the one before it have alike. Grain: column.
-- Needs: that file attached as `before`.
SELECT column_name
FROM duckdb_columns()
WHERE database_name IN ('before', 'warehouse') AND schema_name = 'main'
    AND table_name = 'event_versions'
GROUP BY column_name, data_type
HAVING count(*) = 2;

-- name: list_versions
-- The versions of a file, so that those of two files can be compared. Grain: version.
-- Before $first_day both files have the same. From then on `nth` numbers equal versions of an event.
-- Placeholders: name, source, content.
CREATE TEMP TABLE {name} AS
SELECT
    version, published_seq, event_id, known_from,
    hash({content}) AS content_hash,
    row_number() OVER (PARTITION BY event_id, known_from, content_hash ORDER BY version) AS nth
FROM {source}
WHERE known_from >= $first_day::TIMESTAMPTZ
UNION ALL
SELECT version, published_seq, event_id, known_from, 0, version
FROM {source}
WHERE known_from < $first_day::TIMESTAMPTZ;

-- name: list_removed_before
-- The versions that were removed before. Grain: version. Needs: that file attached as `before`.
CREATE TEMP TABLE removed_before AS FROM before.state.removed_versions;

-- name: keep_places
-- The places of versions that have others than equal versions had before, or that had none. Grain:
-- version.
CREATE TEMP TABLE places AS
SELECT n.event_id, n.version, b.published_seq
FROM versions_now AS n
LEFT JOIN versions_before AS b USING (event_id, known_from, content_hash, nth)
WHERE n.published_seq IS DISTINCT FROM b.published_seq;

-- name: note_removed
-- The versions that were ever published and are not here. Grain: version.
DELETE FROM state.removed_versions;
INSERT INTO state.removed_versions
SELECT event_id, known_from, published_seq
FROM versions_before
ANTI JOIN versions USING (published_seq)
UNION ALL
FROM removed_before;

-- name: number_new
-- The next places, for new versions in order of knowledge. Grain: version.
CREATE OR REPLACE TEMP TABLE places AS
SELECT
    event_id, version,
    row_number() OVER (ORDER BY known_from, event_id, version) + greatest(
        0,
        (SELECT max(published_seq) FROM versions),
        (SELECT max(published_seq) FROM state.removed_versions)
    ) AS published_seq
FROM versions
WHERE published_seq IS NULL;

-- name: take_places
-- Give versions their places. Grain: version. Run twice: the same.
UPDATE current_versions AS c SET published_seq = p.published_seq
FROM places AS p
WHERE p.event_id = c.event_id AND p.version = c.version;
UPDATE ended_versions AS e SET published_seq = p.published_seq
FROM places AS p
WHERE p.event_id = e.event_id AND p.version = e.version;

-- name: note_feed
-- The id of the feed, to which the places belong. Grain: fact.
DELETE FROM _almanac.facts WHERE name = 'feed_id';
INSERT INTO _almanac.facts VALUES ('feed_id', $feed_id);
