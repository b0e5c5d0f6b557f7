-- Coins that a complete look over all coins no longer shows. Grain: slug. Twice is once.
UPDATE coins_state SET missing_since = coalesce(missing_since, $observed_at)
WHERE content_at < $content_at AND slug NOT IN (SELECT slug FROM seen_coins);
