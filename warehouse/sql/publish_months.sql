-- Grain: one row per month that has an event; one for events without a date.
-- Parameters: none. Run twice: the same rows.
SELECT coalesce(strftime(month, '%Y-%m'), '__HIVE_DEFAULT_PARTITION__')
FROM (SELECT DISTINCT date_trunc('month', date) AS month FROM events)
