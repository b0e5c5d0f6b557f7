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
