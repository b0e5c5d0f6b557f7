-- Coins that a complete look over the highest ranks no longer shows: what they are ranked now is
-- not known, but that it is lower. Grain: slug. Twice is once. Parameters: $top, the last rank shown.
UPDATE coins_state SET rank = NULL
WHERE rank <= $top AND content_at < $content_at
  AND slug NOT IN (SELECT slug FROM seen_coins)
  AND NOT EXISTS (
      SELECT 1 FROM rejected AS r WHERE contains(r.raw, '"' || coins_state.slug || '"')
  );
