-- Tables that follow from others: events and their versions, the coins and categories of events, and
-- the complete pulls.

-- name: view_events
-- Grain: one row per event, as now known.
SELECT
    event_id,
    {each content: @name},
    {each dating: @name},
    first_seen_at, last_seen_at, missing_since, known_from AS changed_at, content_at, version,
    _almanac.unknown_fields(known) AS unknown_fields, extra
FROM state.current_versions

-- name: view_event_versions
-- Grain: one row per version of an event.
FROM state.ended_versions
UNION ALL
SELECT
    event_id,
    {each content: @version},
    {each dating: @name},
    version_unknown_fields, version_extra, first_seen_at, version, known_from, NULL, 'observed',
    change_kinds, changed_fields, batch_id, feed, plan, version_content_at, published_seq
FROM state.current_versions

-- name: view_event_coins
-- Grain: one row per event and coin. A coin's own names come before those it had in an event.
SELECT
    l.event_id,
    l.coin,
    coalesce(c.symbol, n.symbol) COLLATE NOCASE AS symbol,
    coalesce(c.name, n.name) AS name
FROM (SELECT event_id, unnest(coins) AS coin FROM events) AS l
LEFT JOIN coins AS c ON c.slug = l.coin
LEFT JOIN state.coin_labels AS n ON n.slug = l.coin

-- name: view_event_categories
-- Grain: one row per event and category. Events carry names; the id is found by name, in any case.
SELECT l.event_id, c.category_id, l.category
FROM (SELECT event_id, unnest(categories) AS category FROM events) AS l
LEFT JOIN (
    SELECT lower(name) AS folded, min(id) AS category_id FROM categories GROUP BY lower(name)
) AS c ON c.folded = lower(l.category)

-- name: view_cancellations
-- Grain: one row per event listed as cancelled.
SELECT event_id, cancelled_at, first_seen_at, last_seen_at, batch_id
FROM state.cancellations_waiting

-- name: view_coverage
-- Grain: one row per complete pull of events or cancellations.
SELECT
    batch_id, feed, plan, lower, upper, since, coins, categories, observed_at, content_at,
    arrived AS rows
FROM batches
WHERE complete
    AND status = 'merged'
    AND feed IN ('export', 'events', 'cancellations')
