-- From verdicts to versions. All comparisons are made before the state changes:
--
--     new            find_creations → find_first_versions
--     differs        find_differences → name_change_kinds → end_versions → log_versions
--     any but new    find_found → log_absences   (if a row ends an absence)
--     unchanged      touch_unchanged
--     same, differs  forget_scores → touch_seen   (before take_content changes what they compare)
--     any but new    end_absences      (if a row ends an absence)
--     differs        take_content → count_change_kinds
--     new            log_versions → count_first_versions → take_first_seen → take_first_content
--     any            note_cancellations
--
-- Aliases: w rows of the observation (`incoming`), j `classified`, c content (`events`), s when and
-- how an event was seen (`event_seen`), k `cancellations_waiting`, n `created`, v `watched_spans` in
-- find_creations, else versions.

-- name: find_creations
-- First sightings that are creations: a complete pull of their date came before they were created.
-- A creation time long after the observation is not believed. Grain: event.
CREATE OR REPLACE TEMP TABLE created AS
SELECT DISTINCT w.event_id
FROM incoming AS w
JOIN classified AS j ON j.event_id = w.event_id AND j.verdict = 'new'
JOIN watched_spans AS v
    ON v.since < believed(w.created_at, w.observed_at) AND w.date BETWEEN v.lower AND v.upper
WHERE (v.coins IS NULL OR list_has_any(v.coins, w.coins))
  AND (v.categories IS NULL OR list_has_any(v.categories, w.categories));

-- name: find_first_versions
-- First sightings. Grain: event. A waiting cancellation applies if it is not older; if the sighting
-- itself is cancelled, only if it is newer.
-- A view, so that a million wide rows are not written twice; a table if they are few, since each use
-- of a view plans its joins again. Placeholders: kind.
CREATE OR REPLACE TEMP {kind} first_versions AS
SELECT
    *,
    list_concat([if(is_created, 'created', 'revealed')],
                if(status = 'cancelled', ['cancelled'], [])) AS change_kinds,
    []::VARCHAR[] AS changed_fields,
    _almanac.earliest(date, date_precision, is_estimated) AS earliest,
    _almanac.latest(date, date_end, date_precision, earliest) AS latest,
    _almanac.displayed_date_full(displayed_date, date, date_end, date_precision, earliest) AS displayed_date_full
FROM (
    SELECT
        w.event_id, w.observed_at, w.content_md5, w.row_md5,
        coalesce(
            k.content_at > w.content_at
                OR (k.content_at = w.content_at AND w.status = 'scheduled'),
            false
        ) AS is_cancelled_before,
        if(is_cancelled_before, k.content_at, w.content_at) AS content_at,
        {each fields: w.@name},
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
-- Differences between the rows of an observation and the state. Grain: event.
-- A field that the row does not show keeps its value. A band that contradicts the known score makes
-- the score unknown.
CREATE OR REPLACE TEMP TABLE changed_events AS
SELECT
    w.event_id, w.observed_at, w.content_at, w.shown, c.first_seen_at, c.version + 1 AS version,
    {each fields before impact:
        if(has(w.shown, @bit), w.@name, @state.@name) AS @name},
    CASE
        WHEN has(w.shown, $impact_bit) THEN w.impact
        WHEN has(w.shown, $impact_band_bit) AND w.impact_band IS DISTINCT FROM c.impact_band THEN NULL
        ELSE c.impact
    END AS impact,
    {each fields after impact:
        if(has(w.shown, @bit), w.@name, @state.@name) AS @name},
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
        {each compared before impact:
            if(has(w.shown & s.known, @bit) AND w.@name IS DISTINCT FROM c.@name, '@name', NULL)},
        CASE
            WHEN has(w.shown & s.known, $impact_bit) AND w.impact IS DISTINCT FROM c.impact
                THEN 'impact'
            WHEN has(w.shown & s.known, $impact_band_bit) AND has(s.known & ~w.shown, $impact_bit)
                 AND w.impact_band IS DISTINCT FROM c.impact_band THEN 'impact'
        END,
        {each compared after impact:
            if(has(w.shown & s.known, @bit) AND w.@name IS DISTINCT FROM c.@name, '@name', NULL)}
    ], lambda name: name IS NOT NULL) AS changed,
    list_filter([
        {each compared: if(has(w.shown & ~s.known, @bit), '@name', NULL)}
    ], lambda name: name IS NOT NULL) AS revealed
FROM incoming AS w
JOIN classified AS j ON j.event_id = w.event_id AND j.verdict = 'differs'
JOIN events AS c ON c.event_id = w.event_id
JOIN event_seen AS s ON s.event_id = w.event_id;

-- name: name_change_kinds
-- The change kinds of each difference, in a fixed order. Grain: event.
-- Changes of a date's text and type belong to a change of the date; alone, they are a revision.
CREATE OR REPLACE TEMP TABLE new_versions AS
SELECT
    * EXCLUDE (old_status, old_cancelled_at),
    unknown_of(known) AS unknown_fields,
    _almanac.earliest(date, date_precision, is_estimated) AS earliest,
    _almanac.latest(date, date_end, date_precision, earliest) AS latest,
    _almanac.displayed_date_full(displayed_date, date, date_end, date_precision, earliest) AS displayed_date_full,
    list_filter([
        if(moved, 'rescheduled', NULL),
        if(flipped AND NOT is_estimated, 'made_exact', NULL),
        if(flipped AND is_estimated, 'made_estimated', NULL),
        if(list_has_any(changed, [{each rescored: '@name'}]), 'rescored', NULL),
        if(list_has_any(changed, [
            {each revised: '@name'}
        ]) OR (list_has_any(changed, [{each date_text: '@name'}])
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
        list_has_any(changed, [{each rescheduled: '@name'}]) AS moved,
        list_contains(changed, 'is_estimated') AS flipped
    FROM changed_events
)
WHERE len(change_kinds) > 0;

-- name: end_versions
-- The versions that others replace end. Grain: event. Run twice: the same.
-- Placeholders: rows.
UPDATE event_versions SET known_to = v.observed_at
FROM {rows} AS v
WHERE event_versions.event_id = v.event_id AND event_versions.version = v.version - 1;

-- name: log_versions
-- New versions, which begin when they were observed. Grain: event, version. Once per observation.
-- Placeholders: rows.
INSERT INTO event_versions BY NAME
SELECT
    event_id, version, observed_at AS known_from, 'observed' AS known_basis, change_kinds,
    changed_fields, $batch_id AS batch_id, $feed AS feed, $plan AS plan, content_at,
    {each content: @name},
    {each dating: @name},
    first_seen_at, unknown_fields, extra::JSON AS extra
FROM {rows};

-- name: find_found
-- Missing events that were seen again. Grain: event.
CREATE OR REPLACE TEMP TABLE absence_changes AS
SELECT
    s.event_id, coalesce(w.observed_at, $observed_at) AS changed_at,
    NULL::TIMESTAMPTZ AS missing_since
FROM event_seen AS s
JOIN classified AS j
    ON j.event_id = s.event_id AND j.verdict IN ('same', 'differs', 'unchanged')
LEFT JOIN incoming AS w ON w.event_id = s.event_id
WHERE s.missing_since IS NOT NULL AND j.is_found;

-- name: touch_unchanged
-- Record that unchanged events were seen. Grain: event. Once per observation.
-- Parameters: $content_at, $observed_at of the observation.
UPDATE event_seen SET
    content_at = $content_at,
    shown_at = $content_at,
    accepted_at = $observed_at,
    last_seen_at = if(j.is_found, $observed_at, event_seen.last_seen_at)
FROM classified AS j
WHERE event_seen.rowid = j.seen_row AND j.verdict = 'unchanged';

-- name: forget_scores
-- A band that contradicts the known score makes the score unknown. Grain: event. Run twice: the same.
-- Only for observations in which a row shows a band without a score.
UPDATE event_seen SET known = event_seen.known & ~$impact_bit
FROM incoming AS w
JOIN classified AS j ON j.event_id = w.event_id AND j.verdict IN ('same', 'differs')
JOIN events AS c ON c.event_id = w.event_id
WHERE event_seen.event_id = w.event_id
  AND has(w.shown, $impact_band_bit) AND NOT has(w.shown, $impact_bit)
  AND w.impact_band IS DISTINCT FROM c.impact_band;

-- name: touch_seen
-- Record that accepted events were seen, changed or not. Grain: event. Once per observation.
-- A row without content (a cancellation) does not show the event.
UPDATE event_seen SET
    known = event_seen.known | w.shown,
    {each uncompared except updated_at:
        @name = if(has(w.shown, @bit), w.@name, event_seen.@name)},
    -- An instant that was not believed must stay so when a later row does not show it.
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
WHERE event_seen.rowid = j.seen_row;

-- name: end_absences
-- Missing events that were seen again are no longer missing. Grain: event. Run twice: the same.
UPDATE event_seen SET
    missing_since = NULL, absent_at = NULL, absent_export_at = NULL, absent_export_content_at = NULL
FROM classified AS j
WHERE event_seen.event_id = j.event_id AND j.is_missing AND j.is_found
  AND j.verdict IN ('same', 'differs', 'unchanged');

-- name: take_content
-- Apply the content of new versions to the events. Grain: event. Run twice: the same.
-- Placeholders: rows.
UPDATE events SET
    {each compared: @name = v.@name},
    {each dating: @name = v.@name},
    status = v.status, cancelled_at = v.cancelled_at, changed_at = v.observed_at,
    version = v.version
FROM {rows} AS v
WHERE events.event_id = v.event_id;

-- name: count_change_kinds
-- How many new versions have each kind, and `versions` of them in all. Grain: kind.
SELECT unnest(change_kinds) AS kind, count(*) FROM new_versions GROUP BY kind
UNION ALL
SELECT 'versions', count(*) FROM new_versions;

-- name: count_first_versions
-- How many first sightings have each kind, and `versions` of them in all. Grain: kind.
-- In one pass, since each use of the view plans its joins again.
SELECT unnest(list_append(change_kinds, 'versions')) AS kind, count(*)
FROM first_versions
GROUP BY kind;

-- name: take_first_seen
-- When new events were seen. Grain: event. Once per observation.
INSERT INTO event_seen
SELECT
    event_id, known, {each uncompared: @name}, extra, content_at, content_at, observed_at,
    observed_at, NULL, NULL, NULL, NULL,
    if(is_cancelled_before, NULL, content_md5),
    if(is_cancelled_before, NULL, row_md5)
FROM first_versions;

-- name: take_first_content
-- Add new events. Grain: event. Once per observation.
-- From their versions, so that the rows of a large observation can be removed before.
INSERT INTO events BY NAME
SELECT
    v.event_id,
    {each content: v.@name},
    {each dating: v.@name},
    v.first_seen_at, v.known_from AS last_seen_at, v.known_from AS changed_at, v.content_at,
    v.version, v.unknown_fields, v.extra
FROM event_versions AS v
JOIN classified AS j ON j.event_id = v.event_id AND j.verdict = 'new'
WHERE v.version = 1;

-- name: note_cancellations
-- Cancellations, seen with or without their event. Grain: event. Run twice: the same.
MERGE INTO cancellations_waiting AS k
USING (SELECT * FROM incoming WHERE status = 'cancelled') AS w
ON k.event_id = w.event_id
WHEN MATCHED THEN UPDATE SET
    cancelled_at = if(w.content_at >= k.content_at, w.cancelled_at, k.cancelled_at),
    content_at = greatest(w.content_at, k.content_at),
    last_seen_at = greatest(k.last_seen_at, w.observed_at)
WHEN NOT MATCHED THEN INSERT
    (event_id, cancelled_at, content_at, first_seen_at, last_seen_at, batch_id)
    VALUES (w.event_id, w.cancelled_at, w.content_at, w.observed_at, w.observed_at, $batch_id);
