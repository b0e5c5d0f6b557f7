-- What differs between rows of a look and the state. Grain: event.
-- A field that the row does not show keeps its value. A band that contradicts the score we hold
-- makes the score unknown.
CREATE OR REPLACE TEMP TABLE differences AS
SELECT
    w.event_id, w.observed_at, w.content_at, w.shown, c.version + 1 AS version,
    if(has(w.shown, 'slug'), w.slug, c.slug) AS slug,
    if(has(w.shown, 'title'), w.title, c.title) AS title,
    if(has(w.shown, 'description'), w.description, c.description) AS description,
    if(has(w.shown, 'displayed_date'), w.displayed_date, c.displayed_date) AS displayed_date,
    if(has(w.shown, 'date'), w.date, c.date) AS date,
    if(has(w.shown, 'date_end'), w.date_end, c.date_end) AS date_end,
    if(has(w.shown, 'date_type'), w.date_type, c.date_type) AS date_type,
    if(has(w.shown, 'is_estimated'), w.is_estimated, c.is_estimated) AS is_estimated,
    if(has(w.shown, 'categories'), w.categories, c.categories) AS categories,
    if(has(w.shown, 'coins'), w.coins, c.coins) AS coins,
    CASE
        WHEN has(w.shown, 'impact') THEN w.impact
        WHEN has(w.shown, 'impact_band') AND w.impact_band IS DISTINCT FROM c.impact_band THEN NULL
        ELSE c.impact
    END AS impact,
    if(has(w.shown, 'impact_band'), w.impact_band, c.impact_band) AS impact_band,
    if(has(w.shown, 'impact_summary'), w.impact_summary, c.impact_summary) AS impact_summary,
    if(has(w.shown, 'source_url'), w.source_url, c.source_url) AS source_url,
    if(has(w.shown, 'snapshot_url'), w.snapshot_url, c.snapshot_url) AS snapshot_url,
    if(has(w.shown, 'last_verified_at'), w.last_verified_at, s.last_verified_at) AS last_verified_at,
    if(has(w.shown, 'created_at'), w.created_at, c.created_at) AS created_at,
    if(has(w.shown, 'updated_at'), w.updated_at, s.updated_at) AS updated_at,
    CASE
        WHEN has(w.shown, 'impact_band') AND NOT has(w.shown, 'impact')
             AND w.impact_band IS DISTINCT FROM c.impact_band
            THEN (s.known | w.shown) & ~$impact_bit
        ELSE s.known | w.shown
    END AS known,
    coalesce(w.extra, s.extra) AS extra,
    w.status, w.cancelled_at,
    c.status AS old_status, c.cancelled_at AS old_cancelled_at,
    list_filter([
        if(has(w.shown & s.known, 'slug') AND w.slug IS DISTINCT FROM c.slug, 'slug', NULL),
        if(has(w.shown & s.known, 'title') AND w.title IS DISTINCT FROM c.title, 'title', NULL),
        if(has(w.shown & s.known, 'description') AND w.description IS DISTINCT FROM c.description, 'description', NULL),
        if(has(w.shown & s.known, 'displayed_date') AND w.displayed_date IS DISTINCT FROM c.displayed_date, 'displayed_date', NULL),
        if(has(w.shown & s.known, 'date') AND w.date IS DISTINCT FROM c.date, 'date', NULL),
        if(has(w.shown & s.known, 'date_end') AND w.date_end IS DISTINCT FROM c.date_end, 'date_end', NULL),
        if(has(w.shown & s.known, 'date_type') AND w.date_type IS DISTINCT FROM c.date_type, 'date_type', NULL),
        if(has(w.shown & s.known, 'is_estimated') AND w.is_estimated IS DISTINCT FROM c.is_estimated, 'is_estimated', NULL),
        if(has(w.shown & s.known, 'categories') AND w.categories IS DISTINCT FROM c.categories, 'categories', NULL),
        if(has(w.shown & s.known, 'coins') AND w.coins IS DISTINCT FROM c.coins, 'coins', NULL),
        CASE
            WHEN has(w.shown & s.known, 'impact') AND w.impact IS DISTINCT FROM c.impact
                THEN 'impact'
            WHEN has(w.shown & s.known, 'impact_band') AND has(s.known & ~w.shown, 'impact')
                 AND w.impact_band IS DISTINCT FROM c.impact_band THEN 'impact'
        END,
        if(has(w.shown & s.known, 'impact_band') AND w.impact_band IS DISTINCT FROM c.impact_band, 'impact_band', NULL),
        if(has(w.shown & s.known, 'impact_summary') AND w.impact_summary IS DISTINCT FROM c.impact_summary, 'impact_summary', NULL),
        if(has(w.shown & s.known, 'source_url') AND w.source_url IS DISTINCT FROM c.source_url, 'source_url', NULL),
        if(has(w.shown & s.known, 'snapshot_url') AND w.snapshot_url IS DISTINCT FROM c.snapshot_url, 'snapshot_url', NULL),
        if(has(w.shown & s.known, 'created_at') AND w.created_at IS DISTINCT FROM c.created_at, 'created_at', NULL)
    ], lambda name: name IS NOT NULL) AS changed,
    list_filter([
        if(has(w.shown & ~s.known, 'slug'), 'slug', NULL),
        if(has(w.shown & ~s.known, 'title'), 'title', NULL),
        if(has(w.shown & ~s.known, 'description'), 'description', NULL),
        if(has(w.shown & ~s.known, 'displayed_date'), 'displayed_date', NULL),
        if(has(w.shown & ~s.known, 'date'), 'date', NULL),
        if(has(w.shown & ~s.known, 'date_end'), 'date_end', NULL),
        if(has(w.shown & ~s.known, 'date_type'), 'date_type', NULL),
        if(has(w.shown & ~s.known, 'is_estimated'), 'is_estimated', NULL),
        if(has(w.shown & ~s.known, 'categories'), 'categories', NULL),
        if(has(w.shown & ~s.known, 'coins'), 'coins', NULL),
        if(has(w.shown & ~s.known, 'impact'), 'impact', NULL),
        if(has(w.shown & ~s.known, 'impact_band'), 'impact_band', NULL),
        if(has(w.shown & ~s.known, 'impact_summary'), 'impact_summary', NULL),
        if(has(w.shown & ~s.known, 'source_url'), 'source_url', NULL),
        if(has(w.shown & ~s.known, 'snapshot_url'), 'snapshot_url', NULL),
        if(has(w.shown & ~s.known, 'created_at'), 'created_at', NULL)
    ], lambda name: name IS NOT NULL) AS revealed
FROM wave AS w
JOIN judged AS j ON j.event_id = w.event_id AND j.verdict = 'differs'
JOIN content AS c ON c.event_id = w.event_id
JOIN sight AS s ON s.event_id = w.event_id;
