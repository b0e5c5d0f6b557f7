MODEL (
  name reports.busy_days,
  kind FULL
);

SELECT
  CAST(date_exact AS DATE) AS day,
  COUNT(*) AS events
FROM almanac.main.upcoming_events
WHERE date_exact >= now()
GROUP BY 1
