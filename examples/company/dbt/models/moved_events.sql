{{ config(pre_hook=find_macros_of_almanac(), post_hook="RESET search_path") }}
SELECT
    now_known.event_id,
    now_known.title,
    then_known.displayed_date AS date_then,
    now_known.displayed_date AS date_now
FROM {{ source('almanac', 'events') }} AS now_known
JOIN {{ events_as_of(var('as_of', "(SELECT greatest(now() - INTERVAL 1 DAY, min(observed_at)) FROM almanac.main.batches)")) }} AS then_known USING (event_id)
WHERE then_known.displayed_date IS DISTINCT FROM now_known.displayed_date
