-- name: find_first_versions
CREATE OR REPLACE TEMP VIEW first_versions AS
SELECT
    *,
    list_concat([if(is_created, 'created', 'revealed')],
                if(status = 'cancelled', ['cancelled'], [])) AS change_kinds,
    []::VARCHAR[] AS changed_fields,
    _almanac.earliest(date, date_precision, is_estimated) AS earliest,
    _almanac.latest(date, date_end, date_precision, earliest) AS latest,
    _almanac.displayed_date_full(displayed_date, date, date_end) AS displayed_date_full
FROM (
    SELECT
        w.event_id, w.observed_at, w.content_md5, w.row_md5,
        coalesce(
            k.content_at > w.content_at
                OR (k.content_at = w.content_at AND w.status = 'scheduled'),
            false
        ) AS is_cancelled_before,
        if(is_cancelled_before, k.content_at, w.content_at) AS content_at,
        w.slug, w.title, w.description, w.displayed_date, w.date, w.date_end, w.date_type,
        w.is_estimated, w.categories, w.coins, w.impact, w.impact_band, w.impact_summary,
        w.source_url, w.snapshot_url, w.last_verified_at, w.created_at, w.updated_at,
        w.shown AS known, m.unknown_fields, w.extra,
        if(is_cancelled_before, 'cancelled', w.status) AS status,
        if(is_cancelled_before, k.cancelled_at, w.cancelled_at) AS cancelled_at,
        _almanac.date_precision(w.date, w.date_type, w.is_estimated) AS date_precision,
        w.observed_at AS first_seen_at, 1 AS version,
        n.event_id IS NOT NULL AS is_created
    FROM incoming AS w
    JOIN classified AS j ON j.event_id = w.event_id AND j.verdict = 'new'
    JOIN (
        SELECT shown, unknown_of(shown) AS unknown_fields
        FROM (SELECT DISTINCT shown FROM incoming)
    ) AS m ON m.shown = w.shown
    LEFT JOIN cancellations_waiting AS k ON k.event_id = w.event_id
    LEFT JOIN created AS n ON n.event_id = w.event_id
);

-- name: find_differences
CREATE OR REPLACE TEMP TABLE changed_events AS
SELECT
    w.event_id, w.observed_at, w.content_at, w.shown, c.first_seen_at, c.version + 1 AS version,
    if(has(w.shown, 1), w.slug, c.slug) AS slug,
    if(has(w.shown, 2), w.title, c.title) AS title,
    if(has(w.shown, 4), w.description, c.description) AS description,
    if(has(w.shown, 8), w.displayed_date, c.displayed_date) AS displayed_date,
    if(has(w.shown, 16), w.date, c.date) AS date,
    if(has(w.shown, 32), w.date_end, c.date_end) AS date_end,
    if(has(w.shown, 64), w.date_type, c.date_type) AS date_type,
    if(has(w.shown, 128), w.is_estimated, c.is_estimated) AS is_estimated,
    if(has(w.shown, 256), w.categories, c.categories) AS categories,
    if(has(w.shown, 512), w.coins, c.coins) AS coins,
    CASE
        WHEN has(w.shown, $impact_bit) THEN w.impact
        WHEN has(w.shown, $impact_band_bit) AND w.impact_band IS DISTINCT FROM c.impact_band THEN NULL
        ELSE c.impact
    END AS impact,
    if(has(w.shown, 2048), w.impact_band, c.impact_band) AS impact_band,
    if(has(w.shown, 4096), w.impact_summary, c.impact_summary) AS impact_summary,
    if(has(w.shown, 8192), w.source_url, c.source_url) AS source_url,
    if(has(w.shown, 16384), w.snapshot_url, c.snapshot_url) AS snapshot_url,
    if(has(w.shown, 32768), w.last_verified_at, s.last_verified_at) AS last_verified_at,
    if(has(w.shown, 65536), w.created_at, c.created_at) AS created_at,
    if(has(w.shown, 131072), w.updated_at, s.updated_at) AS updated_at,
    CASE
        WHEN has(w.shown, $impact_band_bit) AND NOT has(w.shown, $impact_bit)
             AND w.impact_band IS DISTINCT FROM c.impact_band
            THEN (s.known | w.shown) & ~$impact_bit
        ELSE s.known | w.shown
    END AS known,
    coalesce(w.extra, s.extra) AS extra,
    w.status, w.cancelled_at,
    c.status AS old_status, c.cancelled_at AS old_cancelled_at,
    list_filter([
        if(has(w.shown & s.known, 1) AND w.slug IS DISTINCT FROM c.slug, 'slug', NULL),
        if(has(w.shown & s.known, 2) AND w.title IS DISTINCT FROM c.title, 'title', NULL),
        if(has(w.shown & s.known, 4) AND w.description IS DISTINCT FROM c.description, 'description', NULL),
        if(has(w.shown & s.known, 8) AND w.displayed_date IS DISTINCT FROM c.displayed_date, 'displayed_date', NULL),
        if(has(w.shown & s.known, 16) AND w.date IS DISTINCT FROM c.date, 'date', NULL),
        if(has(w.shown & s.known, 32) AND w.date_end IS DISTINCT FROM c.date_end, 'date_end', NULL),
        if(has(w.shown & s.known, 64) AND w.date_type IS DISTINCT FROM c.date_type, 'date_type', NULL),
        if(has(w.shown & s.known, 128) AND w.is_estimated IS DISTINCT FROM c.is_estimated, 'is_estimated', NULL),
        if(has(w.shown & s.known, 256) AND w.categories IS DISTINCT FROM c.categories, 'categories', NULL),
        if(has(w.shown & s.known, 512) AND w.coins IS DISTINCT FROM c.coins, 'coins', NULL),
        CASE
            WHEN has(w.shown & s.known, $impact_bit) AND w.impact IS DISTINCT FROM c.impact
                THEN 'impact'
            WHEN has(w.shown & s.known, $impact_band_bit) AND has(s.known & ~w.shown, $impact_bit)
                 AND w.impact_band IS DISTINCT FROM c.impact_band THEN 'impact'
        END,
        if(has(w.shown & s.known, 2048) AND w.impact_band IS DISTINCT FROM c.impact_band, 'impact_band', NULL),
        if(has(w.shown & s.known, 4096) AND w.impact_summary IS DISTINCT FROM c.impact_summary, 'impact_summary', NULL),
        if(has(w.shown & s.known, 8192) AND w.source_url IS DISTINCT FROM c.source_url, 'source_url', NULL),
        if(has(w.shown & s.known, 16384) AND w.snapshot_url IS DISTINCT FROM c.snapshot_url, 'snapshot_url', NULL),
        if(has(w.shown & s.known, 65536) AND w.created_at IS DISTINCT FROM c.created_at, 'created_at', NULL)
    ], lambda name: name IS NOT NULL) AS changed,
    list_filter([
        if(has(w.shown & ~s.known, 1), 'slug', NULL),
        if(has(w.shown & ~s.known, 2), 'title', NULL),
        if(has(w.shown & ~s.known, 4), 'description', NULL),
        if(has(w.shown & ~s.known, 8), 'displayed_date', NULL),
        if(has(w.shown & ~s.known, 16), 'date', NULL),
        if(has(w.shown & ~s.known, 32), 'date_end', NULL),
        if(has(w.shown & ~s.known, 64), 'date_type', NULL),
        if(has(w.shown & ~s.known, 128), 'is_estimated', NULL),
        if(has(w.shown & ~s.known, 256), 'categories', NULL),
        if(has(w.shown & ~s.known, 512), 'coins', NULL),
        if(has(w.shown & ~s.known, 1024), 'impact', NULL),
        if(has(w.shown & ~s.known, 2048), 'impact_band', NULL),
        if(has(w.shown & ~s.known, 4096), 'impact_summary', NULL),
        if(has(w.shown & ~s.known, 8192), 'source_url', NULL),
        if(has(w.shown & ~s.known, 16384), 'snapshot_url', NULL),
        if(has(w.shown & ~s.known, 65536), 'created_at', NULL)
    ], lambda name: name IS NOT NULL) AS revealed
FROM incoming AS w
JOIN classified AS j ON j.event_id = w.event_id AND j.verdict = 'differs'
JOIN events AS c ON c.event_id = w.event_id
JOIN event_seen AS s ON s.event_id = w.event_id;

-- name: name_change_kinds
CREATE OR REPLACE TEMP TABLE new_versions AS
SELECT
    * EXCLUDE (old_status, old_cancelled_at),
    unknown_of(known) AS unknown_fields,
    _almanac.earliest(date, date_precision, is_estimated) AS earliest,
    _almanac.latest(date, date_end, date_precision, earliest) AS latest,
    _almanac.displayed_date_full(displayed_date, date, date_end) AS displayed_date_full,
    list_filter([
        if(moved, 'rescheduled', NULL),
        if(flipped AND NOT is_estimated, 'made_exact', NULL),
        if(flipped AND is_estimated, 'made_estimated', NULL),
        if(list_has_any(changed, ['impact', 'impact_band']), 'rescored', NULL),
        if(list_has_any(changed, [
            'slug', 'title', 'description', 'categories', 'coins', 'impact_summary', 'source_url',
            'snapshot_url', 'created_at'
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
        _almanac.date_precision(date, date_type, is_estimated) AS date_precision,
        list_has_any(changed, ['date', 'date_end']) AS moved,
        list_contains(changed, 'is_estimated') AS flipped
    FROM changed_events
)
WHERE len(change_kinds) > 0;

-- name: log_versions
INSERT INTO event_versions BY NAME
SELECT
    event_id, version, observed_at AS known_from, 'observed' AS known_basis, change_kinds,
    changed_fields, $batch_id AS batch_id, $feed AS feed, $plan AS plan, content_at,
    slug, title, description, displayed_date, date, date_end, date_type, is_estimated, categories,
    coins, impact, impact_band, impact_summary, source_url, snapshot_url, last_verified_at,
    created_at, updated_at, status, cancelled_at,
    date_precision, earliest, latest, displayed_date_full,
    first_seen_at, unknown_fields, extra::JSON AS extra
FROM {rows};

-- name: touch_seen
UPDATE event_seen SET
    known = event_seen.known | w.shown,
    last_verified_at = if(has(w.shown, 32768), w.last_verified_at, event_seen.last_verified_at),
    updated_at = CASE
        WHEN has(w.shown, $updated_at_bit) THEN w.updated_at
        WHEN w.shown = 0 THEN event_seen.updated_at
        ELSE believed(event_seen.updated_at, event_seen.accepted_at)
    END,
    extra = coalesce(w.extra, event_seen.extra),
    content_at = greatest(event_seen.content_at, w.content_at),
    shown_at = w.content_at,
    accepted_at = if(w.shown = 0, event_seen.accepted_at, w.observed_at),
    last_seen_at = if(w.shown = 0 OR NOT j.is_found, event_seen.last_seen_at, w.observed_at),
    content_md5 = w.content_md5,
    row_md5 = w.row_md5
FROM incoming AS w
JOIN classified AS j ON j.event_id = w.event_id AND j.verdict IN ('same', 'differs')
WHERE event_seen.event_id = w.event_id;

-- name: take_content
UPDATE events SET
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
    date_precision = v.date_precision,
    earliest = v.earliest,
    latest = v.latest,
    displayed_date_full = v.displayed_date_full,
    status = v.status, cancelled_at = v.cancelled_at, changed_at = v.observed_at,
    version = v.version
FROM {rows} AS v
WHERE events.event_id = v.event_id;

-- name: take_first_seen
INSERT INTO event_seen
SELECT
    event_id, known, last_verified_at, updated_at, extra, content_at, content_at, observed_at,
    observed_at, NULL, NULL, NULL, NULL,
    if(is_cancelled_before, NULL, content_md5),
    if(is_cancelled_before, NULL, row_md5)
FROM first_versions;

-- name: take_first_content
INSERT INTO events BY NAME
SELECT
    v.event_id,
    v.slug, v.title, v.description, v.displayed_date, v.date, v.date_end, v.date_type,
    v.is_estimated, v.categories, v.coins, v.impact, v.impact_band, v.impact_summary, v.source_url,
    v.snapshot_url, v.last_verified_at, v.created_at, v.updated_at, v.status, v.cancelled_at,
    v.date_precision, v.earliest, v.latest, v.displayed_date_full,
    v.first_seen_at, v.known_from AS last_seen_at, v.known_from AS changed_at, v.content_at,
    v.version, v.unknown_fields, v.extra
FROM event_versions AS v
JOIN classified AS j ON j.event_id = v.event_id AND j.verdict = 'new'
WHERE v.version = 1;
