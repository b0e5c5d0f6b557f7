-- Each value used, against the version of its decision and the others of its event.
--
--     known_values ─▶ (keys) ─▶ departures; known_runs ─▶ findings      for each field
--     all_findings ─▶ worst ─▶ chosen ─▶ chosen_findings
--
-- `uses` has the key of the value used, `spans` a row per version, `known` a row per version and key
-- of what was known. A use that departs lies in no run of its key, so the runs suffice for its past.

-- name: known_values
-- Grain: one row per row of `versions`, with what it says of a field, and whether its plan hid it.
-- is_exact is false where the value is a period or a deadline ($is_date: the field is `date`), and
-- period is how that is displayed.
-- Parameters: $field, its name; $is_date; {field} is the same name as an identifier.
-- Run twice: the same rows.
SELECT
    v.place, v.event_number, v.known_from,
    list_contains(k.unknown_fields, $field) AS is_hidden,
    NOT $is_date OR coalesce(k.dated IN ('instant', 'day'), false) AS is_exact,
    CASE WHEN NOT is_exact AND k.{field} IS NOT NULL
        THEN coalesce(k.shown || ' ', '') || '(' || k.dated || ')'
    END AS period,
    k.{field} AS value
FROM versions AS v
JOIN (
    SELECT
        event_id, version, unknown_fields, date_precision AS dated,
        displayed_date_full AS shown, {field}
    FROM event_versions
    UNION ALL
    SELECT event_id, version, unknown_fields, date_precision, displayed_date_full, {field}
    FROM event_claims
) AS k ON k.event_id = v.event_id AND k.version = v.version
ORDER BY v.place

-- name: known_runs
-- Grain: one row per key and run of versions of an event that have it, with when the run began.
-- Parameters: none. Run twice: the same rows.
SELECT event_number, key, is_exact, known_from
FROM known
QUALIFY place - 1 IS DISTINCT FROM
    lag(place) OVER (PARTITION BY event_number, key, is_exact ORDER BY place)

-- name: departures
-- Grain: one row per row of `uses` whose value is not what its version says. A value with two keys
-- (`loose`: a midnight that may be a day) equals what either has; it departs all the same if another
-- version has its strict key. From here on its key is the strict one if any version has that.
-- Parameters: none. Run twice: the same rows.
SELECT
    u.use, u.index, u.slug, u.decided_at, u.place, u.event_number, u.is_read, u.is_period,
    if(e.key IS NULL, coalesce(u.loose, u.key), u.key) AS key,
    k.place IS NOT NULL OR (l.place IS NOT NULL AND e.key IS NULL) AS is_same,
    coalesce(l.is_exact OR u.is_period, false) AND l.place IS NOT NULL AS is_loosely_known
FROM uses AS u
LEFT JOIN known AS k ON k.place = u.place AND k.key = u.key
LEFT JOIN known AS l ON l.place = u.place AND l.key = u.loose
LEFT JOIN (SELECT DISTINCT event_number, key FROM known) AS e
    ON e.event_number = u.event_number AND e.key = u.key AND u.loose IS NOT NULL
WHERE NOT u.is_read
    OR (
        (k.place IS NULL OR NOT coalesce(k.is_exact OR u.is_period, false))
        AND (
            e.key IS NOT NULL OR l.place IS NULL OR NOT coalesce(l.is_exact OR u.is_period, false)
        )
    )

-- name: findings
-- Grain: one row per row of `departures`: its verdict, and when the value could first be known.
-- A value that had been known before is no look-ahead, even if it was known once more later. A date
-- counts as known only where it was exact, unless the row says that it is a period (is_period). Where
-- no column says either (is_period is NULL) and the two verdicts differ, it can't be judged. NULL that
-- no version had was not used.
-- Parameters: $field; $later, the verdict of a value known later; $last_pull_at. Run twice: the same rows.
SELECT
    use, index, slug, place, $field AS field,
    CASE
        WHEN NOT is_read THEN 'unreadable'
        WHEN is_loosely_known AND any_before IS NULL AND any_after IS NOT NULL THEN $later
        WHEN is_loosely_known THEN 'clean'
        WHEN is_same AND is_period IS NULL THEN 'unknown_precision'
        WHEN is_same THEN 'estimated_as_exact'
        WHEN is_hidden AND key = 0 THEN 'clean'
        WHEN exact_before IS NOT NULL THEN 'outdated'
        WHEN is_hidden THEN 'unknown_field'
        WHEN exact_after IS NOT NULL AND any_before IS NOT NULL AND is_period IS NULL
            THEN 'unknown_precision'
        WHEN exact_after IS NOT NULL THEN $later
        WHEN any_before IS NOT NULL THEN 'outdated'
        WHEN any_after IS NOT NULL THEN $later
        WHEN key = 0 THEN 'clean'
        WHEN decided_at > $last_pull_at THEN 'after_last_pull'
        ELSE 'never_known'
    END AS verdict,
    CASE verdict
        WHEN 'estimated_as_exact' THEN exact_after
        WHEN 'outdated' THEN coalesce(exact_before, any_before)
        WHEN $later THEN coalesce(exact_after, any_after)
    END AS knowable_from
FROM (
    SELECT d.*, v.is_hidden, h.* EXCLUDE (use)
    FROM departures AS d
    JOIN spans AS v ON v.place = d.place
    LEFT JOIN (
        SELECT
            use,
            min(known_from) FILTER (is_before AND is_taken) AS exact_before,
            min(known_from) FILTER (NOT is_before AND is_taken) AS exact_after,
            min(known_from) FILTER (is_before) AS any_before,
            min(known_from) FILTER (NOT is_before) AS any_after
        FROM (
            SELECT
                d.use, k.known_from,
                k.known_from <= d.decided_at AS is_before,
                k.is_exact OR d.is_period AS is_taken
            FROM departures AS d
            JOIN runs AS k ON k.event_number = d.event_number AND k.key = d.key
            WHERE d.is_read
        )
        GROUP BY use
    ) AS h ON h.use = d.use
)

-- name: findings_of_coins
-- Grain: one row per row of `findings`, about coins, that counts. A row that names its event may be of
-- another coin than those of the event; a link that came later tells all the same.
-- Parameters: none. Run twice: the same rows.
SELECT f.*
FROM findings AS f
JOIN rows AS r ON r.index = f.index
WHERE r.event_id IS NULL OR f.verdict IN ('edited_later', 'outdated')
ORDER BY f.use

-- name: period_uses
-- Grain: one row per row of `periods` (number; is_estimated, date_type, date_precision: texts or NULL):
-- whether it says that its date is a period or a deadline. In the order of `number`.
-- Parameters: none. Run twice: the same rows.
SELECT
    coalesce(lower(is_estimated) IN ('true', 't', 'yes', 'y', '1', '1.0'), false)
    OR coalesce(lower(date_type) IN ('month', 'quarter', 'year'), false)
    OR coalesce(lower(date_precision) IN ('month', 'quarter', 'year', 'deadline'), false)
    AS is_period
FROM periods
ORDER BY number

-- name: all_findings
-- Grain: one row per finding of a use: about its row or its event as a whole, or about a value.
-- Parameters: none. Run twice: the same rows.
SELECT
    f.use, u.index, u.row, u.event_id, u.decided_at,
    f.* EXCLUDE (use) REPLACE (coalesce(f.reason, s.reason) AS reason), s.severity, s.mismatch
FROM (
    SELECT
        use, 'event_id' AS field, verdict, event_id AS used, NULL::VARCHAR AS known_then,
        NULL::TIMESTAMPTZ AS knowable_from, reason
    FROM uses
    WHERE verdict IS NOT NULL
    UNION ALL BY NAME
    SELECT p.use, 'event_id' AS field, p.verdict, u.event_id AS used, p.knowable_from, p.reason
    FROM unplaced AS p
    JOIN uses AS u ON u.use = p.use
    UNION ALL BY NAME
    SELECT use, field, verdict, used, known_then, knowable_from
    FROM value_findings
    WHERE verdict <> 'clean'
) AS f
JOIN uses AS u ON u.use = f.use
JOIN severities AS s ON s.verdict = f.verdict

-- name: worst
-- Grain: one row per use with a finding: its worst verdict, and how little the values fit its event.
-- Parameters: none. Run twice: the same rows.
SELECT use, min(severity) AS severity, max(mismatch) AS mismatch, count(*) AS findings
FROM all_findings
GROUP BY use

-- name: chosen
-- Grain: one row per row of the caller: the use that counts. Of the events that a coin and a date may
-- name, it is the one that the values fit best.
-- Parameters: none. Run twice: the same rows.
SELECT u.use
FROM uses AS u
LEFT JOIN worst AS f ON f.use = u.use
QUALIFY row_number() OVER (
    PARTITION BY u.index
    ORDER BY f.mismatch NULLS FIRST, f.findings, f.severity DESC, u.event_id
) = 1
ORDER BY u.index

-- name: chosen_findings
-- Grain: one row per finding of a use that counts (`chosen`; NULL if every use does), in the order
-- of the rows.
-- Parameters: $is_chosen, whether to leave out uses that are not in `chosen`.
-- Run twice: the same rows.
SELECT
    row, event_id, decided_at, field, verdict, used, known_then, knowable_from, reason
FROM all_findings
WHERE verdict <> 'no_event' AND (NOT $is_chosen OR use IN (SELECT use FROM chosen))
ORDER BY row, severity, field
