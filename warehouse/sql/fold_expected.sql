-- How many known events a look with this scope should show. Grain: one row.
-- Scope by `date` alone: a service may match events of several days by their first.
SELECT count(*)
FROM content AS c
WHERE c.status = 'scheduled' AND c.date >= $lower AND ($upper IS NULL OR c.date <= $upper)
  AND ($coins IS NULL OR list_has_any(c.coins, $coins))
  AND ($categories IS NULL OR list_has_any(c.categories, $categories))
  AND ($covered IS NULL OR list_has_any(c.coins, $covered));
