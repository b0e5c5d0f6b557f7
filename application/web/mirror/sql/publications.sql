-- The published file that a mirror serves, and the feed of a replay.
--
--     _almanac.facts ─▶ its publication      batches ─▶ its home      event_versions ─▶ feed
--
-- The file is attached as `published`; the feed is in memory.

-- name: find_publication
-- Grain: one row, when the file was published, by the machine's clock, and its feed. Once per file.
SELECT p.value, f.value
FROM published._almanac.facts AS p, published._almanac.facts AS f
WHERE p.name = 'published_at' AND f.name = 'feed_id'

-- name: list_first_batches
-- Grain: one row per batch, of the first thousand. Once per publication.
SELECT batch_id
FROM published.batches
ORDER BY observed_at, batch_id
LIMIT 1000

-- name: count_batches
-- Grain: one row, the number of the given batches that the file has. Once per publication.
SELECT count(*)
FROM published.batches
WHERE list_contains($batches, batch_id)

-- name: make_feed
-- Grain: one row per version that became known until the end, in order of knowledge. Its place is
-- its number since the start; those of earlier versions are not above 0. Once per replay.
CREATE TABLE feed AS
SELECT
    row_number() OVER (ORDER BY known_from, event_id, version)
    - count(*) FILTER (known_from <= $start) OVER () AS seq,
    event_id, version, known_from
FROM published.event_versions
WHERE known_from <= $until

-- name: list_feed
-- Grain: one row per version of the feed after a place, until another, in order. Any number of
-- times.
SELECT event_id, version, known_from
FROM feed
WHERE seq > $after AND seq <= $until
ORDER BY seq
