-- From verdicts to versions. All comparisons are made before the state changes:
--
--     new            find_creations → first_sightings → dated → add_first_versions
--                    → count_first_versions
--     differs        find_differences → name_change_kinds → count_change_kinds
--                    → redated_versions → dated → date_new_versions   (if a date is new)
--     any but new    find_found → log_absences   (if a row ends an absence)
--     unchanged      touch_unchanged
--     any but new    end_absences      (if a row ends an absence)
--     differs        forget_scores → end_versions → take_versions → mark_versioned
--     same, differs  touch_seen        (if a row made no version)
--     any            note_cancellations
--
-- Aliases: w rows of the observation (`incoming`), j `classified`, c `current_versions`,
-- k `cancellations_waiting`, n `created`, v `watched_spans` in find_creations, else versions.

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

-- name: dated
-- Rows with the time at which their events take place. Grain: that of the rows. Reads only.
-- Each step is in a subquery of its own: a macro copies its arguments wherever it uses them, and
-- planning the copies takes longer than all else. Placeholders: rows.
SELECT
    * EXCLUDE (period, stated_precision, stated_earliest),
    _almanac.latest(date, date_end, date_precision, earliest) AS latest,
    _almanac.displayed_date_full(displayed_date, date, date_end, date_precision, earliest) AS displayed_date_full,
    _almanac.date_doubt(period, displayed_date, date, stated_precision) AS date_doubt
FROM (
    SELECT
        *, coalesce(period.exactness, stated_precision) AS date_precision,
        coalesce(period.first, stated_earliest) AS earliest
    FROM (
        SELECT *, _almanac.agreed_period(displayed_date, date, date_end, stated_precision, stated_earliest) AS period
        FROM (
            SELECT *, _almanac.earliest(date, stated_precision, is_estimated) AS stated_earliest
            FROM (
                SELECT *, _almanac.date_precision(date, date_type, is_estimated) AS stated_precision
                FROM ({rows})
            )
        )
    )
)

-- name: first_sightings
-- The rows that show an event for the first time, and the cancellation that waits for it. Grain: event.
-- A waiting cancellation applies if it is not older; if the sighting itself is cancelled, only if it is
-- newer. Reads only.
SELECT
    w.*, m.unknown_fields, n.event_id IS NOT NULL AS is_created, k AS waiting,
    coalesce(
        k.content_at > w.content_at OR (k.content_at = w.content_at AND w.status = 'scheduled'), false
    ) AS is_cancelled_before
FROM incoming AS w
JOIN classified AS j ON j.event_id = w.event_id AND j.verdict = 'new'
JOIN (
    SELECT shown, _almanac.unknown_fields(shown) AS unknown_fields
    FROM (SELECT DISTINCT shown FROM incoming)
) AS m ON m.shown = w.shown
LEFT JOIN cancellations_waiting AS k ON k.event_id = w.event_id
LEFT JOIN created AS n ON n.event_id = w.event_id

-- name: add_first_versions
-- First sightings. Grain: event. Once per observation. In one statement, so that a million wide rows
-- are not written twice. Placeholders: dated, of first_sightings.
INSERT INTO current_versions BY NAME
SELECT
    event_id,
    {each fields: @name},
    if(is_cancelled_before, 'cancelled', status) AS status,
    if(is_cancelled_before, waiting.cancelled_at, cancelled_at) AS cancelled_at,
    {each dating: @name},
    extra, observed_at AS first_seen_at, 1 AS version, observed_at AS known_from,
    list_concat([if(is_created, 'created', 'revealed')],
                if(is_cancelled_before OR status = 'cancelled', ['cancelled'], [])) AS change_kinds,
    []::VARCHAR[] AS changed_fields, $batch_id AS batch_id, $feed AS feed, $plan AS plan,
    {each uncompared: @name AS version_@name},
    unknown_fields AS version_unknown_fields, extra AS version_extra,
    if(is_cancelled_before, waiting.content_at, content_at) AS version_content_at,
    shown AS known, version_content_at AS content_at, version_content_at AS shown_at,
    observed_at AS accepted_at, observed_at AS last_seen_at,
    if(is_cancelled_before, NULL, content_hash) AS content_hash,
    if(is_cancelled_before, NULL, row_hash) AS row_hash
FROM ({dated});

-- name: find_differences
-- Differences between the rows of an observation and the state. Grain: event. Reads only.
-- A field that the row does not show keeps its value. A band that contradicts the known score makes
-- the score unknown. `judged` are the fields that are known on both sides, and the score if only its
-- band is; `differs` has all fields in the order of their bits.
SELECT
    w.event_id, w.observed_at, w.content_at, w.shown, w.content_hash, w.row_hash, j.current_row,
    c.first_seen_at, c.version + 1 AS version, greatest(c.content_at, w.content_at) AS newest_content_at,
    w.content_at AS shown_at, if(w.shown = 0, c.accepted_at, w.observed_at) AS accepted_at,
    if(w.shown = 0 OR NOT j.is_found, c.last_seen_at, w.observed_at) AS last_seen_at,
    CASE
        WHEN has(w.shown, $updated_at_bit) THEN w.updated_at
        WHEN w.shown = 0 THEN c.updated_at
        ELSE believed(c.updated_at, c.accepted_at)
    END AS newest_updated_at,
    has(w.shown, $impact_band_bit) AND NOT has(w.shown, $impact_bit) AS is_band,
    w.impact_band IS DISTINCT FROM c.impact_band AS has_other_band,
    {each fields before impact:
        if(has(w.shown, @bit), w.@name, c.@name) AS @name},
    CASE
        WHEN has(w.shown, $impact_bit) THEN w.impact
        WHEN NOT (is_band AND has_other_band) THEN c.impact
    END AS impact,
    {each fields after impact:
        if(has(w.shown, @bit), w.@name, c.@name) AS @name},
    if(is_band AND has_other_band, (c.known | w.shown) & ~$impact_bit, c.known | w.shown) AS known,
    coalesce(w.extra, c.extra) AS extra,
    w.status, w.cancelled_at,
    c.status AS old_status, c.cancelled_at AS old_cancelled_at,
    {each dating: c.@name},
    [
        {each fields before impact: w.@name IS DISTINCT FROM c.@name},
        if(is_band, has_other_band, w.impact IS DISTINCT FROM c.impact),
        {each fields after impact: w.@name IS DISTINCT FROM c.@name}
    ] AS differs,
    (w.shown & c.known & $compared_bits)
        | if(is_band AND has(c.known, $impact_band_bit), c.known & $impact_bit, 0) AS judged,
    list_filter([{each fields: '@name'}], lambda name, place:
        differs[place] AND has(judged, 1::BIGINT << (place - 1)::INTEGER)) AS changed,
    _almanac.unknown_fields(~(w.shown & ~c.known & $compared_bits)) AS revealed
FROM incoming AS w
JOIN classified AS j ON j.event_id = w.event_id AND j.verdict = 'differs'
JOIN current_versions AS c ON c.rowid = j.current_row

-- name: name_change_kinds
-- The change kinds of each difference, in a fixed order. Grain: event.
-- Changes of a date's text and type belong to a change of the date; alone, they are a revision.
CREATE OR REPLACE TEMP TABLE new_versions AS
SELECT
    * EXCLUDE (old_status, old_cancelled_at, is_band, has_other_band, differs, judged),
    _almanac.unknown_fields(known) AS unknown_fields,
    list_has_any(changed, [{each rescheduled: '@name'}]) AS moved,
    list_contains(changed, 'is_estimated') AS flipped,
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
    ], lambda name: name IS NOT NULL)) AS changed_fields,
    list_has_any(changed_fields, [
        {each rescheduled: '@name'}, {each date_text: '@name'}, {each estimate: '@name'}
    ]) AS is_redated
FROM ({find_differences})
WHERE len(change_kinds) > 0;

-- name: count_change_kinds
-- How many new versions have each kind, `versions` of them in all, and `redated` ones with a new date.
-- Grain: kind.
SELECT unnest(list_concat(change_kinds, ['versions', if(is_redated, 'redated', NULL)])) AS kind, count(*)
FROM new_versions
GROUP BY kind;

-- name: redated_versions
-- New versions in which a field is new from which the dating follows. Grain: event. Reads only.
SELECT * EXCLUDE ({each dating: @name}) FROM new_versions
WHERE is_redated

-- name: date_new_versions
-- New versions with another date take place at another time. Grain: event. Run twice: the same.
-- Placeholders: dated, of redated_versions.
UPDATE new_versions AS v SET {each dating: @name = d.@name}
FROM ({dated}) AS d
WHERE v.event_id = d.event_id;

-- name: find_found
-- Missing events that were seen again. Grain: event.
CREATE OR REPLACE TEMP TABLE absence_changes AS
SELECT
    j.event_id, coalesce(w.observed_at, $observed_at) AS changed_at,
    NULL::TIMESTAMPTZ AS missing_since
FROM classified AS j
LEFT JOIN incoming AS w ON w.event_id = j.event_id
WHERE j.verdict IN ('same', 'differs', 'unchanged') AND j.is_missing AND j.is_found;

-- name: touch_unchanged
-- Record that unchanged events were seen. Grain: event. Once per observation.
-- Parameters: $content_at, $observed_at of the observation.
UPDATE current_versions AS c SET
    content_at = $content_at,
    shown_at = $content_at,
    accepted_at = $observed_at,
    last_seen_at = if(j.is_found, $observed_at, c.last_seen_at)
FROM classified AS j
WHERE c.rowid = j.current_row AND j.verdict = 'unchanged';

-- name: end_absences
-- Missing events that were seen again are no longer missing. Grain: event. Run twice: the same.
UPDATE current_versions AS c SET
    missing_since = NULL, absent_at = NULL, absent_export_at = NULL, absent_export_content_at = NULL
FROM classified AS j
WHERE c.rowid = j.current_row AND j.is_missing AND j.is_found
  AND j.verdict IN ('same', 'differs', 'unchanged');

-- name: forget_scores
-- A band that contradicts the known score makes the score unknown. Grain: event. Run twice: the same.
-- Only for observations in which a row shows a band without a score.
UPDATE current_versions AS c SET known = c.known & ~$impact_bit
FROM incoming AS w
JOIN classified AS j ON j.event_id = w.event_id AND j.verdict IN ('same', 'differs')
WHERE c.rowid = j.current_row
  AND has(w.shown, $impact_band_bit) AND NOT has(w.shown, $impact_bit)
  AND w.impact_band IS DISTINCT FROM c.impact_band;

-- name: end_versions
-- The current versions that others replace end. Grain: event, version. Once per observation, before
-- take_versions. Placeholders: rows.
INSERT INTO ended_versions BY NAME
SELECT
    c.event_id,
    {each content: c.@version AS @name},
    {each dating: c.@name},
    c.version_unknown_fields AS unknown_fields, c.version_extra AS extra, c.first_seen_at, c.version,
    c.known_from, v.observed_at AS known_to, 'observed' AS known_basis, c.change_kinds, c.changed_fields, c.batch_id, c.feed,
    c.plan, c.version_content_at AS content_at, c.published_seq
FROM current_versions AS c
JOIN {rows} AS v ON v.current_row = c.rowid;

-- name: take_versions
-- The next versions of events are current from when they were observed, and the events were seen. A row
-- moves, so that its texts are not written again with those of other rows. Grain: event. Once per
-- observation. Placeholders: rows.
UPDATE current_versions AS c SET
    {each compared: @name = v.@name},
    {each dating: @name = v.@name},
    {each uncompared: version_@name = v.@name},
    status = v.status, cancelled_at = v.cancelled_at, version = v.version,
    known_from = v.observed_at, change_kinds = v.change_kinds, changed_fields = v.changed_fields,
    batch_id = $batch_id, feed = $feed, plan = $plan, version_unknown_fields = v.unknown_fields,
    version_extra = v.extra, version_content_at = v.content_at, published_seq = NULL,
    {each uncompared except updated_at: @name = v.@name},
    updated_at = v.newest_updated_at, known = v.known, extra = v.extra,
    content_at = v.newest_content_at, shown_at = v.shown_at, accepted_at = v.accepted_at,
    last_seen_at = v.last_seen_at, content_hash = v.content_hash, row_hash = v.row_hash
FROM {rows} AS v
WHERE c.rowid = v.current_row;

-- name: mark_versioned
-- Mark the rows that made a version, with which their events were seen. Grain: event. Run twice: the same.
UPDATE classified SET verdict = 'versioned' WHERE event_id IN (SELECT event_id FROM new_versions);

-- name: touch_seen
-- Record that accepted events were seen whose rows made no version. Grain: event. Once per observation.
-- A row without content (a cancellation) does not show the event.
UPDATE current_versions AS c SET
    known = c.known | w.shown,
    {each uncompared except updated_at:
        @name = if(has(w.shown, @bit), w.@name, c.@name)},
    -- An instant that was not believed must stay so when a later row does not show it.
    updated_at = CASE
        WHEN has(w.shown, $updated_at_bit) THEN w.updated_at
        WHEN w.shown = 0 THEN c.updated_at
        ELSE believed(c.updated_at, c.accepted_at)
    END,
    extra = coalesce(w.extra, c.extra),
    content_at = greatest(c.content_at, w.content_at),
    shown_at = w.content_at,
    accepted_at = if(w.shown = 0, c.accepted_at, w.observed_at),
    last_seen_at = if(w.shown = 0 OR NOT j.is_found, c.last_seen_at, w.observed_at),
    content_hash = w.content_hash,
    row_hash = w.row_hash
FROM incoming AS w
JOIN classified AS j ON j.event_id = w.event_id AND j.verdict IN ('same', 'differs')
WHERE c.rowid = j.current_row;

-- name: count_first_versions
-- How many first sightings have each kind, and `versions` of them in all. Grain: kind.
SELECT unnest(list_append(change_kinds, 'versions')) AS kind, count(*)
FROM current_versions
WHERE event_id IN (SELECT event_id FROM classified WHERE verdict = 'new')
GROUP BY kind;

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
