-- The questions about events. Filters that are NULL select everything. Lists of coins are slugs.
--
--     events_as_of ─▶ events          upcoming_as_of ─▶ upcoming
--     changes      ─▶ changes         event_versions ─▶ history, first_release, vintage_dates
--     events ─▶ (date less a time) ─▶ event_versions, event_claims ─▶ known_before

-- name: publication
-- Grain: one row: the identifier of the publication, the instant when it was made, as text, and the
-- instants of its last merged pull, and of the first and last pull of events; NULL if there was none.
-- Parameters: none. Run twice: the same row.
SELECT
    any_value(value) FILTER (name = 'publication') AS id,
    any_value(value) FILTER (name = 'published_at') AS published_at,
    (SELECT max(observed_at) FROM batches WHERE status = 'merged') AS last_pull_at,
    (SELECT first_at FROM _almanac.first_look) AS first_pull_at,
    (SELECT last_at FROM _almanac.first_look) AS last_events_at
FROM _almanac.facts

-- name: published_names
-- Grain: one row per table or view of the publication with the name $name, in any case.
-- Parameters: $name. Run twice: the same rows.
SELECT table_name
FROM (
    SELECT database_name, schema_name, table_name FROM duckdb_tables()
    UNION ALL
    SELECT database_name, schema_name, view_name FROM duckdb_views()
)
WHERE database_name = current_database()
    AND schema_name = 'main'
    AND lower(table_name) = lower($name)

-- name: events
-- Grain: one row per event known at $at that passes the filters, as it was known then.
-- Parameters: $at; $basis; $coins, $categories (names in small letters), $statuses, lists or NULL;
-- $lower and $upper, instants or NULL: the event may lie in the window, one with a deadline at any
-- time from its first sighting; $lower_day and $upper_day, the same for dates of days and periods;
-- $min_impact, and $bands, the bands that lie above it as a whole.
-- Run twice: the same rows.
SELECT *
FROM events_as_of($at::TIMESTAMPTZ, basis := $basis)
WHERE {shared_has_filters}
    AND ($statuses::VARCHAR[] IS NULL OR list_contains($statuses::VARCHAR[], status))
    AND {shared_in_window}
ORDER BY earliest NULLS LAST, latest, event_id

-- name: upcoming
-- Grain: one row per event that was scheduled, not missing, and not over at $at, and that may begin
-- before $until, as it was known then.
-- Parameters: $at, $until; $estimated: include, drop or only events without an exact date; $coins,
-- $categories, $min_impact, $bands as in events. Run twice: the same rows.
SELECT *
FROM upcoming_as_of($at::TIMESTAMPTZ)
WHERE {shared_has_filters}
    AND coalesce(earliest, $at::TIMESTAMPTZ) < $until::TIMESTAMPTZ
    AND ($estimated = 'include' OR ($estimated = 'drop') = (date_precision IN ('instant', 'day')))
ORDER BY earliest NULLS LAST, latest, event_id

-- name: changes
-- Grain: one row per observed version that became known after $since, until $until, and kind of
-- change.
-- Parameters: $since, $until; $kinds, $coins, $categories, lists or NULL; $min_impact, $bands as in
-- events.
-- Run twice: the same rows.
SELECT * EXCLUDE (categories)
FROM changes_since($since::TIMESTAMPTZ)
JOIN (SELECT event_id, version, categories FROM event_versions) USING (event_id, version)
WHERE known_from <= $until::TIMESTAMPTZ
    AND ($kinds::VARCHAR[] IS NULL OR list_contains($kinds::VARCHAR[], kind))
    AND {shared_has_filters}
ORDER BY known_from, event_id, version, kind

-- name: announcements
-- Grain: one row per event, and coin of it, that had a kind of change after $since, until $until: the
-- first of them.
-- Parameters: as in changes. Run twice: the same rows.
SELECT
    event_id, unnest(coins) AS coin, title, known_from AS date, known_from, date AS event_date,
    categories, impact, impact_band
FROM (
    SELECT v.*
    FROM changes_since($since::TIMESTAMPTZ) AS c
    JOIN event_versions AS v USING (event_id, version)
    WHERE c.known_from <= $until::TIMESTAMPTZ AND list_contains($kinds::VARCHAR[], c.kind)
    QUALIFY row_number() OVER (PARTITION BY event_id ORDER BY version) = 1
)
WHERE {shared_has_filters}
ORDER BY known_from, event_id, coin

-- name: history
-- Grain: one row per version of the event $event_id, oldest first.
-- Parameters: $event_id. Run twice: the same rows.
SELECT * EXCLUDE (published_seq) FROM event_versions WHERE event_id = $event_id ORDER BY version

-- name: history_and_claims
-- Grain: one row per version of the event $event_id, and per claim of the service of the time before
-- the first observation, oldest first. Apart from the history, since the claims take longer to plan.
-- Parameters: $event_id. Run twice: the same rows.
SELECT * EXCLUDE (published_seq) FROM event_versions WHERE event_id = $event_id
UNION ALL BY NAME
SELECT * FROM event_claims WHERE event_id = $event_id
ORDER BY version

-- name: ids_named
-- Grain: one row per event with the id or slug $text, in any case and with white space around it; an
-- id comes before a slug of the same text.
-- Parameters: $text. Run twice: the same rows.
SELECT event_id
FROM event_versions
WHERE lower(trim($text)) IN (lower(event_id), lower(slug))
GROUP BY event_id
QUALIFY rank() OVER (ORDER BY lower(event_id) = lower(trim($text)) DESC) = 1
ORDER BY event_id

-- name: known_before
-- Grain: one row per event whose last known date is exact, as it was known $lead before that date,
-- if that instant is not to come.
-- Parameters: $lead, an interval; $now; $basis; $categories as in events. Run twice: the same rows.
SELECT k.*, 'observed' AS known_basis
FROM known_before($lead::INTERVAL) AS k
WHERE k.known_at <= $now::TIMESTAMPTZ
    AND {shared_has_category}
UNION ALL BY NAME
SELECT
    c.* EXCLUDE (
        known_from, known_to, known_basis, change_kinds, changed_fields, batch_id, feed, plan,
        content_at
    ),
    c.known_from AS changed_at,
    e.known_at,
    e.date_final,
    'claimed' AS known_basis
FROM (
    SELECT
        event_id, date AS date_final,
        ((date AT TIME ZONE 'UTC') - $lead::INTERVAL) AT TIME ZONE 'UTC' AS known_at
    FROM events
    WHERE date_precision IN ('instant', 'day')
) AS e
JOIN event_claims AS c
    ON c.event_id = e.event_id AND c.known_from <= e.known_at AND c.known_to > e.known_at
WHERE $basis = 'claimed'
    AND e.known_at <= $now::TIMESTAMPTZ
    AND {shared_has_category}
ORDER BY known_at, event_id

-- name: date_survival
-- Grain: one row per category, precision and number of days; those of all events first.
-- Parameters: $at; $days, a list. Run twice: the same rows.
SELECT *
FROM date_survival($at::TIMESTAMPTZ, $days::DOUBLE[])
ORDER BY category NULLS FIRST, date_precision NULLS FIRST, after_days

-- name: slip_rates
-- Grain: one row per category, distance and precision; NULL is all of them.
-- Parameters: $at; $days; $category, or NULL for all rows. Run twice: the same rows.
SELECT
    *,
    slipped / cohort AS slipped_share, pulled_in / cohort AS pulled_in_share,
    refined / cohort AS refined_share, loosened / cohort AS loosened_share,
    cancelled / cohort AS cancelled_share, withdrawn / cohort AS withdrawn_share,
    held / cohort AS held_share
FROM (
    SELECT
        category, distance_from,
        CASE WHEN grouping(distance_from) = 0 THEN any_value(distance) END AS distance,
        date_precision,
        sum(cohort)::BIGINT AS cohort, sum(slipped)::BIGINT AS slipped,
        sum(pulled_in)::BIGINT AS pulled_in, sum(refined)::BIGINT AS refined,
        sum(loosened)::BIGINT AS loosened, sum(cancelled)::BIGINT AS cancelled,
        sum(withdrawn)::BIGINT AS withdrawn, sum(held)::BIGINT AS held
    FROM slip_rates($at::TIMESTAMPTZ, $days::DOUBLE)
    WHERE $category::VARCHAR IS NULL OR category = $category::VARCHAR
    GROUP BY category, CUBE (distance_from, date_precision)
)
ORDER BY category NULLS FIRST, distance_from NULLS FIRST, date_precision NULLS FIRST

-- name: category_names
-- Grain: one row per category.
-- Parameters: none. Run twice: the same rows.
SELECT DISTINCT name AS category FROM categories
UNION
SELECT DISTINCT category FROM event_categories
ORDER BY category
