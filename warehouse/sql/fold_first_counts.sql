-- How many first sightings have each kind, and `versions` of them in all. Grain: kind.
SELECT if(is_created, 'created', 'revealed') AS kind, count(*) FROM firsts GROUP BY kind
UNION ALL
SELECT 'cancelled', count(*) FROM firsts WHERE status = 'cancelled' HAVING count(*) > 0
UNION ALL
SELECT 'versions', count(*) FROM firsts;
