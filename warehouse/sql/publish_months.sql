-- Grain: one row per month that has an event; one for events without a date.
-- Parameters: none. Run twice: the same rows.
-- Many events share an instant, and finding its month takes longer than finding that it is one.
SELECT DISTINCT coalesce(strftime(date, '%Y-%m'), '__HIVE_DEFAULT_PARTITION__')
FROM (SELECT DISTINCT date FROM events)
