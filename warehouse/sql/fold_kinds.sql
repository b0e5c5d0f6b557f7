-- The kinds of each difference, in the order they are always named. Grain: event.
-- The text and the type of a date go with the date: alone, they are a revision.
CREATE OR REPLACE TEMP TABLE new_versions AS
SELECT
    * EXCLUDE (old_status, old_cancelled_at),
    list_filter([
        if(moved, 'rescheduled', NULL),
        if(flipped AND NOT is_estimated, 'made_exact', NULL),
        if(flipped AND is_estimated, 'made_estimated', NULL),
        if(list_has_any(changed, ['impact', 'impact_band']), 'rescored', NULL),
        if(list_has_any(changed, [
            'slug', 'title', 'description', 'categories', 'coins', 'impact_summary',
            'source_url', 'snapshot_url', 'created_at'
        ]) OR (list_has_any(changed, ['displayed_date', 'date_type'])
               AND NOT moved AND NOT flipped), 'revised', NULL),
        if(status = 'cancelled' AND (old_status <> 'cancelled'
           OR cancelled_at IS DISTINCT FROM old_cancelled_at), 'cancelled', NULL),
        if(status = 'scheduled' AND old_status <> 'scheduled', 'restored', NULL),
        if(len(revealed) > 0, 'revealed', NULL)
    ], lambda kind: kind IS NOT NULL) AS change_kinds,
    list_concat(changed, revealed, list_filter([
        if(status <> old_status, 'status', NULL),
        if(cancelled_at IS DISTINCT FROM old_cancelled_at, 'cancelled_at', NULL)
    ], lambda name: name IS NOT NULL)) AS changed_fields
FROM (
    SELECT
        *,
        list_has_any(changed, ['date', 'date_end']) AS moved,
        list_contains(changed, 'is_estimated') AS flipped
    FROM differences
)
WHERE len(change_kinds) > 0;
