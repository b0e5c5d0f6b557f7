-- What was watched by complete looks, and since when. Grain: filter and span of event dates.
INSERT INTO watched VALUES ($coins, $categories, $lower, $upper, $since);
