-- How much changes, and when: the figures that the poll planner uses. Each only reads.

-- name: count_feeds
-- Numbers of coins and cancellations that the daily pulls page through.
-- Grain: one row. Parameters: $since, as far back as cancellations are listed.
SELECT
    (SELECT count(*) FROM coins WHERE missing_since IS NULL) AS coins,
    (SELECT count(*) FROM cancellations WHERE cancelled_at >= $since) AS cancellations;

-- name: count_spans
-- Number of events for each pair of dates, as known now. Grain: first and last date.
-- Parameters: $since, the first date of interest.
SELECT CAST(date AS DATE) AS first, CAST(date_end AS DATE) AS last, count(*) AS events
FROM events
WHERE status = 'scheduled' AND missing_since IS NULL
  AND CAST(greatest(date, coalesce(date_end, date)) AS DATE) >= $since
GROUP BY ALL
ORDER BY ALL;

-- name: list_missing
-- Missing events without a look-up since. Grain: event_id, missing longest first. Parameters: $now;
-- events that are over are left out.
SELECT event_id
FROM events AS e
WHERE status = 'scheduled' AND missing_since IS NOT NULL
  AND greatest(date, coalesce(date_end, date)) >= $now
  AND NOT EXISTS (
      SELECT 1 FROM batches AS b
      WHERE b.feed = 'event' AND b.event_id = e.event_id AND b.observed_at >= e.missing_since
  )
ORDER BY missing_since, event_id;
