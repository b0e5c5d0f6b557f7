-- Grain: one row per month that has an event.
-- Parameters: none. Run twice: the same rows.
SELECT DISTINCT event_month FROM events_by_month
