-- A later look at the same day replaces the coins it shows. Grain: slug.
DELETE FROM snapshot WHERE slug IN (SELECT slug FROM seen_coins);
