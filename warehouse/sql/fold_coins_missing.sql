-- Coins that a complete look over all coins no longer shows. Grain: slug. Twice is once.
-- One whose row came but was rejected is not missing.
UPDATE coins_state SET missing_since = coalesce(missing_since, $observed_at)
WHERE content_at < $content_at
  AND slug NOT IN (SELECT slug FROM seen_coins)
  AND NOT EXISTS (
      SELECT 1 FROM rejected AS r WHERE contains(r.raw, '"' || coins_state.slug || '"')
  );
