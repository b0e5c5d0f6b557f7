-- Events that a complete observation should have shown and did not: missing, then withdrawn.
--
--     count_rejected_of_anyone             a batch with rejected rows of unknown events makes none missing
--     find_absent                          lists and exports
--     → count_newly_absent → doubt_absences → keep_repeated   (an export that lacks too many events)
--     touch_still_withdrawn → find_not_found   a single event's own address
--     count_absent → find_absence_changes → log_absences → mark_missing → find_withdrawn
--     → end_versions, take_versions (versions.sql) → take_withdrawn_seen
--
-- Aliases: w rows of the observation (`seen`), c `current_versions`, j `classified`, r `rejected`,
-- a `absent`.

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
-- cancellations were pulled in between. `is_repeated`: an earlier export, of an earlier snapshot, did
-- not show the event either, and was doubted. The scope uses `date` alone: a service may match events
-- of several days by their first day. Parameters: $is_proving_export, whether this is an export on a
-- plan that proves.
CREATE OR REPLACE TEMP TABLE absent AS
SELECT
    c.event_id,
    coalesce($is_proving_export AND c.absent_export_content_at < $content_at
        AND list_bool_or(list_transform(
            $cancellations_seen::STRUCT("since" TIMESTAMPTZ, observed_at TIMESTAMPTZ)[],
            lambda seen: seen.observed_at >= c.absent_export_at
                AND seen.since <= c.content_at)),
        false) AS is_proven,
    c.missing_since IS NOT NULL AS is_missing,
    coalesce(c.doubted_at > c.content_at AND c.doubted_at < $content_at, false) AS is_repeated
FROM current_versions AS c
WHERE c.status = 'scheduled' AND c.content_at < $content_at
  AND c.date >= $lower AND ($upper IS NULL OR c.date <= $upper)
  AND ($coins IS NULL OR list_has_any(c.coins, $coins))
  AND ($categories IS NULL OR list_has_any(c.categories, $categories))
  AND ($covered IS NULL OR list_has_any(c.coins, $covered))
  AND NOT EXISTS (SELECT 1 FROM classified AS j WHERE j.event_id = c.event_id)
  AND NOT EXISTS (SELECT 1 FROM rejected AS r WHERE contains(r.raw, c.event_id));

-- name: count_newly_absent
-- How many events are absent for the first time, and how many rows the observation has. Grain: one row.
SELECT
    (SELECT count(*) FROM absent WHERE NOT is_missing AND NOT is_repeated),
    (SELECT count(*) FROM classified);

-- name: doubt_absences
-- Note the absences of an export that lacks too many events. Grain: event. Run twice: the same.
UPDATE current_versions AS c SET doubted_at = $content_at
FROM absent AS a
WHERE c.event_id = a.event_id AND NOT a.is_missing AND NOT a.is_repeated;

-- name: keep_repeated
-- Of a doubted export, only the absences count that it repeats. Grain: event. Run twice: the same.
DELETE FROM absent WHERE NOT is_repeated;

-- name: touch_still_withdrawn
-- A withdrawn event whose look-up still answers 404: only the content time is newer. Grain: event.
UPDATE current_versions AS c SET content_at = $content_at
FROM seen AS w
WHERE c.event_id = w.event_id AND w.status = 'not_found' AND c.status = 'withdrawn'
  AND c.content_at < $content_at
  AND $is_proof AND c.date >= $lower AND ($upper IS NULL OR c.date <= $upper);

-- name: find_not_found
-- An event whose look-up answered 404 though it should be visible. Grain: event.
-- A 404 that is proof also counts if its content time equals that of the known state; any other 404
-- counts only if it is newer.
CREATE OR REPLACE TEMP TABLE absent AS
SELECT c.event_id, $is_proof AS is_proven
FROM seen AS w
JOIN current_versions AS c USING (event_id)
WHERE w.status = 'not_found' AND c.status = 'scheduled'
  AND (c.content_at < $content_at OR ($is_proof AND c.content_at = $content_at))
  AND c.date >= $lower AND ($upper IS NULL OR c.date <= $upper)
  AND ($covered IS NULL OR list_has_any(c.coins, $covered));

-- name: count_absent
-- How many events are absent, and how many of them are withdrawn. Grain: one row.
SELECT count(*), count(*) FILTER (is_proven) FROM absent;

-- name: find_absence_changes
-- Which absent events begin to be missing, and which no longer are since they are withdrawn now.
-- Grain: event. Once per observation, before mark_missing.
CREATE OR REPLACE TEMP TABLE absence_changes AS
SELECT
    a.event_id, $observed_at AS changed_at, if(a.is_proven, NULL, $observed_at) AS missing_since
FROM absent AS a
JOIN current_versions AS c USING (event_id)
WHERE a.is_proven = (c.missing_since IS NOT NULL);

-- name: remove_absences
-- Of several changes at one time the last counts. Grain: event. Before log_absences.
DELETE FROM event_absences
USING absence_changes AS a
WHERE event_absences.event_id = a.event_id AND event_absences.changed_at = a.changed_at;

-- name: log_absences
-- Log the changes of `missing_since`. Grain: event. Once per observation.
-- An event that was found at the time at which it became missing has no row.
INSERT INTO event_absences BY NAME
SELECT
    a.changed_at::DATE AS observed_date, a.event_id, a.changed_at, a.missing_since,
    $batch_id AS batch_id
FROM absence_changes AS a
LEFT JOIN (
    SELECT event_absences.event_id, arg_max_null(event_absences.missing_since, event_absences.changed_at) AS missing_since
    FROM event_absences
    JOIN absence_changes AS a ON a.event_id = event_absences.event_id
    WHERE event_absences.changed_at < a.changed_at
    GROUP BY ALL
) AS before ON before.event_id = a.event_id
WHERE a.missing_since IS NOT NULL OR before.missing_since IS NOT NULL;

-- name: mark_missing
-- Mark absent events as missing: this makes no version. Grain: event. Run twice: the same.
-- Of exports only those on a plan that proves count for a withdrawal.
UPDATE current_versions AS c SET
    missing_since = coalesce(c.missing_since, $observed_at),
    absent_at = greatest(c.absent_at, $content_at),
    absent_export_at = if($is_proving_export, coalesce(c.absent_export_at, $observed_at),
                          c.absent_export_at),
    absent_export_content_at = if($is_proving_export,
                                  coalesce(c.absent_export_content_at, $content_at),
                                  c.absent_export_content_at)
FROM absent AS a
WHERE c.event_id = a.event_id;

-- name: find_withdrawn
-- The versions of withdrawn events: the content before the withdrawal. Grain: event.
CREATE OR REPLACE TEMP TABLE withdrawn AS
SELECT
    c.event_id, c.rowid AS current_row, c.version + 1 AS version, $observed_at AS observed_at,
    ['withdrawn'] AS change_kinds, ['status'] AS changed_fields, $content_at AS content_at,
    {each fields: c.@name},
    'withdrawn' AS status, NULL::TIMESTAMPTZ AS cancelled_at,
    {each dating: c.@name},
    _almanac.unknown_fields(c.known) AS unknown_fields, c.extra,
    c.updated_at AS newest_updated_at, c.known, $content_at AS newest_content_at, c.shown_at,
    c.accepted_at, c.last_seen_at, NULL AS content_hash, NULL AS row_hash
FROM current_versions AS c
WHERE c.event_id IN (SELECT event_id FROM absent WHERE is_proven);

-- name: take_withdrawn_seen
-- Withdrawn events are no longer missing. Grain: event. Run twice: the same.
UPDATE current_versions AS c SET
    missing_since = NULL, absent_at = NULL, absent_export_at = NULL,
    absent_export_content_at = NULL
FROM absent AS a
WHERE c.event_id = a.event_id AND a.is_proven;
