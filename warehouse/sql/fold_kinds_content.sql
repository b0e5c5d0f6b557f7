-- The state takes the content of new versions. Grain: event. Once per look.
UPDATE content SET
    slug = v.slug,
    title = v.title,
    description = v.description,
    displayed_date = v.displayed_date,
    date = v.date,
    date_end = v.date_end,
    date_type = v.date_type,
    is_estimated = v.is_estimated,
    categories = v.categories,
    coins = v.coins,
    impact = v.impact,
    impact_band = v.impact_band,
    impact_summary = v.impact_summary,
    source_url = v.source_url,
    snapshot_url = v.snapshot_url,
    created_at = v.created_at,
    status = v.status,
    cancelled_at = v.cancelled_at,
    version = v.version,
    changed_at = v.observed_at
FROM new_versions AS v
WHERE content.event_id = v.event_id;
