-- How many events lie on which dates, as now known. Grain: first and last date.
-- Parameters: $since, the first date of interest.
SELECT CAST(date AS DATE) AS first, CAST(date_end AS DATE) AS last, count(*) AS events
FROM events
WHERE status = 'scheduled' AND missing_since IS NULL
  AND CAST(greatest(date, coalesce(date_end, date)) AS DATE) >= $since
GROUP BY ALL
ORDER BY ALL;
