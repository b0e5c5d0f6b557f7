-- How much changes, and when: what the poll planner learns from history. Each reads alone.

-- name: count_feeds
-- What a day's look at the other feeds has to page through, and since when anything was watched.
-- Grain: one row. Parameters: $since, as far back as cancellations are listed.
SELECT
    (SELECT count(*) FROM coins WHERE missing_since IS NULL) AS coins,
    (SELECT count(*) FROM cancellations WHERE cancelled_at >= $since) AS cancellations,
    (SELECT first_at FROM _almanac_first_look) AS first_look;

-- name: count_spans
-- How many events lie on which dates, as now known. Grain: first and last date.
-- Parameters: $since, the first date of interest.
SELECT CAST(date AS DATE) AS first, CAST(date_end AS DATE) AS last, count(*) AS events
FROM events
WHERE status = 'scheduled' AND missing_since IS NULL
  AND CAST(greatest(date, coalesce(date_end, date)) AS DATE) >= $since
GROUP BY ALL
ORDER BY ALL;

-- name: count_changes
-- What changed since an instant, by how far ahead the event lay when that became known. Grain: kind
-- and distance in days. Parameters: $since. First sightings of what is not new are left out: they
-- tell of our own looks.
SELECT
    CASE
        WHEN list_contains(change_kinds, 'cancelled') THEN 'cancelled'
        WHEN list_contains(change_kinds, 'created') THEN 'announced'
        ELSE 'edited'
    END AS kind,
    date_diff('day', CAST(known_from AS DATE), CAST(date AS DATE)) AS distance,
    count(*) AS changes
FROM event_versions
WHERE known_from > $since AND known_basis = 'observed'
  AND NOT list_contains(change_kinds, 'revealed')
GROUP BY ALL
ORDER BY ALL;

-- name: list_vanished
-- Events that a look should have shown and did not, of which nobody asked since. Grain: event_id,
-- missing longest first. Parameters: $now; what is over is not asked for.
SELECT event_id
FROM events AS e
WHERE status = 'scheduled' AND missing_since IS NOT NULL
  AND greatest(date, coalesce(date_end, date)) >= $now
  AND NOT EXISTS (
      SELECT 1 FROM batches AS b
      WHERE b.feed = 'event' AND b.event_id = e.event_id AND b.observed_at >= e.missing_since
  )
ORDER BY missing_since, event_id;
