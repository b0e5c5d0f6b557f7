-- How many new versions have each kind, and `versions` of them in all. Grain: kind.
SELECT unnest(change_kinds) AS kind, count(*) FROM new_versions GROUP BY kind
UNION ALL
SELECT 'versions', count(*) FROM new_versions;
