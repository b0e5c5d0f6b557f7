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
