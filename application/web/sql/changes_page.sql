-- The changes of a period, for the page of changes. A change is selected by when it became known, so a
-- page as of a past time has nothing of later.
--
--     changes, event_versions, reschedules ─▶ page_changes ─▶ count_changes, list_changes

-- name: page_changes
-- Grain: one row per version and kind of change, the rows of `changes`, in the order in which they
-- became known. `follows` is a kind of the same change of a date. A version whose date moved has the move of `reschedules`; else its columns are NULL.
-- Parameters: none. Run twice: the same rows. `Reader.prepare` keeps them for a publication.
SELECT
    c.*, v.published_seq, v.categories, v.displayed_date_full, v.source_url, v.change_kinds,
    v.changed_fields, {shared_impact_step} AS impact_step,
    m.kind AS move, m.shift_days, m.least_shift_days, m.most_shift_days,
    if(
        c.kind IN ('made_exact', 'made_estimated') AND list_contains(v.change_kinds, 'rescheduled'),
        'rescheduled',
        NULL
    ) AS follows,
    CASE WHEN m.old_date_precision = 'instant' THEN m.old_date_exact END AS old_time,
    CASE WHEN m.new_date_precision = 'instant' THEN m.new_date_exact END AS new_time
FROM changes AS c
JOIN event_versions AS v USING (event_id, version)
LEFT JOIN reschedules AS m USING (event_id, version)
ORDER BY c.known_from

-- name: count_changes
-- Grain: one row per kind of change in the period: its changes, and the rows of list_changes.
-- Parameters: $since (exclusive) and $until, instants, or $after and $through, places of the feed, else
-- NULL; $coins and $categories (names in small letters), lists or NULL; $words, a part of the title in
-- small letters, or NULL; $min_impact, a score or NULL; $bands, the bands that lie above it; $kinds and
-- $is_apart, as list_changes.
-- Run twice: the same rows.
SELECT
    kind, count(*) AS changes,
    count(*) FILTER (
        follows IS NULL OR $is_apart::BOOLEAN OR NOT list_contains($kinds::VARCHAR[], follows)
    ) AS rows
FROM page_changes
WHERE {shared_in_period}
    AND {has_filters}
GROUP BY kind

-- name: feed_place
-- Grain: one row, the feed of the publication and its last place of a version known at $until.
-- Parameters: $until. Run twice: the same row.
SELECT
    (SELECT value FROM _almanac.facts WHERE name = 'feed_id') AS feed_id,
    (
        SELECT coalesce(max(published_seq), 0) FROM event_versions WHERE known_from <= $until::TIMESTAMPTZ
    ) AS place

-- name: list_changes
-- Grain: one row per change in the period, newest first, without those that follow another unless
-- $is_apart; of one time the highest impact first, and of
-- a version in the order of $kinds. $limit changes after the first $skip.
-- Parameters: as count_changes; $kinds, a list; $is_apart; $skip, $limit. Run twice: the same rows.
SELECT * EXCLUDE (published_seq, follows)
FROM page_changes
WHERE {shared_in_period}
    AND {has_filters}
    AND kind IN (SELECT unnest($kinds::VARCHAR[]))
    AND (follows IS NULL OR $is_apart::BOOLEAN OR NOT list_contains($kinds::VARCHAR[], follows))
ORDER BY
    known_from DESC, impact DESC NULLS LAST, event_id, version DESC,
    list_position($kinds::VARCHAR[], kind)
LIMIT $limit::BIGINT OFFSET $skip::BIGINT

-- name: list_contents
-- Grain: one row per version of the events $ids. Parameters: $ids. Run twice: the same rows.
FROM page_contents WHERE event_id IN (SELECT unnest($ids::VARCHAR[]))

-- name: page_contents
-- Grain: one row per version of each event that was revised or revealed after its first version.
-- Parameters: none. Run twice: the same rows. `Reader.prepare` keeps them for a publication.
FROM event_versions
WHERE event_id IN (
    SELECT event_id FROM event_versions
    WHERE version > 1 AND list_has_any(change_kinds, ['revised', 'revealed'])
)
ORDER BY event_id
