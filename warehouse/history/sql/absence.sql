-- Events that a complete observation should have shown and did not: missing, then withdrawn.
--
--     count_expected                       an export with too few rows makes nothing missing
--     count_rejected_of_anyone             nor does one with rejected rows of unknown events
--     find_absent                          lists and exports
--     touch_still_withdrawn → find_not_found   a single event's own address
--     log_absent → mark_missing → count_withdrawn → find_withdrawn → log_withdrawn
--     → take_withdrawn_content, take_withdrawn_seen
--
-- Aliases: w rows of the observation (`seen`), c content in the state (`event_current`), s when and
-- how an event was seen (`event_seen`), j `classified`, r `rejected`, a `absent`.

-- name: count_expected
-- How many known events an observation with this scope should show. Grain: one row.
-- The scope uses `date` alone: a service may match events of several days by their first day.
SELECT count(*)
FROM event_current AS c
WHERE c.status = 'scheduled' AND c.date >= $lower AND ($upper IS NULL OR c.date <= $upper)
  AND ($coins IS NULL OR list_has_any(c.coins, $coins))
  AND ($categories IS NULL OR list_has_any(c.categories, $categories))
  AND ($covered IS NULL OR list_has_any(c.coins, $covered));

-- name: count_rejected_of_anyone
-- How many rejected rows can't be assigned: the id is missing or unreadable, or was cut off.
-- Grain: one row. Parameters: $naming, the field that identifies a row.
SELECT count(*)
FROM rejected
WHERE starts_with(reason, $naming || ':') OR starts_with(reason, 'expected an object')
    OR contains(reason, '(raw text cut)');

-- name: find_absent
-- Scheduled events that a complete observation should have shown, and did not. Grain: event.
-- An event whose row was rejected is not absent. `is_proven`: the absence is proof of a withdrawal.
-- An earlier complete export, of an earlier snapshot, did not show the event either, and the
-- cancellations were pulled in between. Parameters: $is_proving_export, whether this is an export on a plan that proves.
CREATE OR REPLACE TEMP TABLE absent AS
SELECT
    c.event_id,
    coalesce($is_proving_export AND s.absent_export_content_at < $content_at
        AND list_bool_or(list_transform(
            $cancellations_seen::STRUCT("since" TIMESTAMPTZ, observed_at TIMESTAMPTZ)[],
            lambda seen: seen.observed_at >= s.absent_export_at
                AND seen.since <= s.content_at)),
        false) AS is_proven
FROM event_current AS c
JOIN event_seen AS s USING (event_id)
WHERE c.status = 'scheduled' AND s.content_at < $content_at
  AND c.date >= $lower AND ($upper IS NULL OR c.date <= $upper)
  AND ($coins IS NULL OR list_has_any(c.coins, $coins))
  AND ($categories IS NULL OR list_has_any(c.categories, $categories))
  AND ($covered IS NULL OR list_has_any(c.coins, $covered))
  AND NOT EXISTS (SELECT 1 FROM classified AS j WHERE j.event_id = c.event_id)
  AND NOT EXISTS (SELECT 1 FROM rejected AS r WHERE contains(r.raw, c.event_id));

-- name: touch_still_withdrawn
-- A withdrawn event whose look-up still answers 404: only the content time is newer. Grain: event.
UPDATE event_seen SET content_at = $content_at
FROM seen AS w
JOIN event_current AS c ON c.event_id = w.event_id
WHERE event_seen.event_id = w.event_id AND w.status = 'not_found' AND c.status = 'withdrawn'
  AND event_seen.content_at < $content_at
  AND $is_proof AND c.date >= $lower AND ($upper IS NULL OR c.date <= $upper);

-- name: find_not_found
-- An event whose look-up answered 404 though it should be visible. Grain: event.
-- A 404 that is proof also counts if its content time equals that of the known state; any other 404
-- counts only if it is newer.
CREATE OR REPLACE TEMP TABLE absent AS
SELECT c.event_id, $is_proof AS is_proven
FROM seen AS w
JOIN event_current AS c USING (event_id)
JOIN event_seen AS s USING (event_id)
WHERE w.status = 'not_found' AND c.status = 'scheduled'
  AND (s.content_at < $content_at OR ($is_proof AND s.content_at = $content_at))
  AND c.date >= $lower AND ($upper IS NULL OR c.date <= $upper)
  AND ($covered IS NULL OR list_has_any(c.coins, $covered));

-- name: log_absent
-- Log which absent events begin to be missing, and which no longer are since they are withdrawn now.
-- Grain: event. Once per observation, before mark_missing.
INSERT INTO day_absences
SELECT
    a.event_id, $observed_at, if(a.is_proven, NULL, $observed_at), $batch_id,
    (SELECT coalesce(max(place), 0) + 1 FROM day_absences)
FROM absent AS a
JOIN event_seen AS s USING (event_id)
WHERE a.is_proven = (s.missing_since IS NOT NULL);

-- name: mark_missing
-- Mark absent events as missing: this makes no version. Grain: event. Run twice: the same.
-- Of exports only those on a plan that proves count for a withdrawal.
UPDATE event_seen SET
    missing_since = coalesce(event_seen.missing_since, $observed_at),
    absent_at = greatest(event_seen.absent_at, $content_at),
    absent_export_at = if($is_proving_export, coalesce(event_seen.absent_export_at, $observed_at),
                          event_seen.absent_export_at),
    absent_export_content_at = if($is_proving_export,
                                  coalesce(event_seen.absent_export_content_at, $content_at),
                                  event_seen.absent_export_content_at)
FROM absent AS a
WHERE event_seen.event_id = a.event_id;

-- name: count_withdrawn
-- How many absent events are withdrawn. Grain: one row.
SELECT count(*) FROM absent WHERE is_proven;

-- name: find_withdrawn
-- The content of withdrawn events before the withdrawal. Grain: event.
CREATE OR REPLACE TEMP TABLE withdrawn AS
SELECT
    event_id,
    {each compared: @name},
    first_seen_at, version
FROM event_current
WHERE event_id IN (SELECT event_id FROM absent WHERE is_proven);

-- name: log_withdrawn
-- Versions of withdrawn events. Grain: event, version. Once per observation.
INSERT INTO day_versions
SELECT
    c.event_id, c.version + 1, $observed_at, 'observed', ['withdrawn'], ['status'],
    $batch_id, $feed, $plan, $content_at,
    {each fields: @state.@name},
    'withdrawn', NULL, s.known, s.extra
FROM withdrawn AS c
JOIN event_seen AS s USING (event_id);

-- name: take_withdrawn_content
-- Apply the withdrawals to the state. Grain: event. Run twice: the same.
MERGE INTO event_content AS c USING withdrawn AS w ON c.event_id = w.event_id
WHEN MATCHED THEN UPDATE SET
    status = 'withdrawn', cancelled_at = NULL, changed_at = $observed_at, version = w.version + 1,
    is_saved = false
WHEN NOT MATCHED THEN INSERT VALUES (
    w.event_id,
    {each compared: w.@name},
    'withdrawn', NULL, w.first_seen_at, $observed_at, w.version + 1, false
);

-- name: take_withdrawn_seen
-- Apply the withdrawals to the state. Grain: event. Run twice: the same.
UPDATE event_seen SET
    content_at = $content_at, content_md5 = NULL, row_md5 = NULL,
    missing_since = NULL, absent_at = NULL, absent_export_at = NULL,
    absent_export_content_at = NULL
FROM absent AS a
WHERE event_seen.event_id = a.event_id AND a.is_proven;
