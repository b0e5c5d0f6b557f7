-- The queries of a store: the catalog of a published file as the interface shows it, as of a time.
--
--     event_versions ─▶ known at $ts ─▶ the list, single events, the export, counters of coins
--     event_versions ─▶ {feed} ───────▶ changes
--     coin_snapshots ─────────────────▶ coins at that time
--     cancellations ──────────────────▶ cancellations at that time
--
-- The file is attached as {schema}; a part in braces is another entry of this file. A list finds the
-- places of its rows first, with few columns. Only the filters of the request are in a query, since
-- planning is a large part of its time.

-- name: make_has_text
-- Grain: a macro of one value, whether a text contains `keyword` in any case. Once per store.
-- `casefold` is Python's, and only called for texts that are not ASCII: for others it is `lower`.
CREATE OR REPLACE MACRO has_text(value, keyword) AS
    CASE
        WHEN strlen(value) = length(value) THEN contains(lower(value), keyword)
        ELSE contains(casefold(value), keyword)
    END

-- name: make_has_any
-- Grain: a macro of one value, whether a list has one of some texts. Once per store. For many texts
-- it takes a tenth of the time of `list_has_any`.
CREATE OR REPLACE MACRO has_any(list, wanted) AS
    len(list_filter(list, lambda each: list_contains(wanted::VARCHAR[], each))) > 0

-- name: known
-- A filter: the versions known at $ts.
known_from <= $ts AND (known_to > $ts OR known_to IS NULL)

-- name: shown
-- Grain: one row per event that the list shows at $ts in the window from $least to $most, of
-- which Python has all dates. Two scans, so that each compares one column with a constant.
(
    SELECT published_seq AS place, {columns}
    FROM {schema}.event_versions
    WHERE {known} AND status = 'scheduled' AND date >= $least AND date <= $most
    UNION ALL
    SELECT published_seq AS place, {columns}
    FROM {schema}.event_versions
    WHERE {known} AND status = 'scheduled' AND date_end >= $least AND date <= $most
        AND date < $least AND date >= '0001-01-01 00:00:00+00'
)

-- name: columns
-- The columns that filters and orders use.
event_id, date, impact, impact_band, coins, categories, title, description

-- name: filter_coins
has_any(coins, $coins)

-- name: filter_categories
has_any(categories, $categories)

-- name: filter_impact
impact >= $impact::DOUBLE

-- name: filter_covered
has_any(coins, $covered)

-- name: filter_keyword
(has_text(title, $keyword) OR ($in_description AND has_text(description, $keyword)))

-- name: by_date
-- An order of the list; a cursor has the values of the last row.
(floor(epoch(date)), event_id)

-- name: by_impact
-- An order of the list. An event without a score is last.
(coalesce(-impact, 1.0), floor(epoch(date)), event_id)

-- name: after_date
-- A filter: the rows after a cursor in the order by_date.
FILTER ((floor(epoch(date)), event_id) > ($date::DOUBLE, $event_id))

-- name: after_impact
-- A filter: the rows after a cursor in the order by_impact.
FILTER (
    (coalesce(-impact, 1.0), floor(epoch(date)), event_id)
    > ($score::DOUBLE, $date::DOUBLE, $event_id)
)

-- name: list_places
-- Grain: one row: the number of events that match, and the places of the first after a key.
SELECT count(*), arg_min(place, {order}, $limit::BIGINT) {after}
FROM {shown}
WHERE {filters}

-- name: event_columns
-- The fields of StoredEvent in their order.
event_id, slug, title, description, displayed_date, epoch(date), epoch(date_end), date_type,
is_estimated, categories, coins, impact, impact_summary, source_url, snapshot_url,
epoch(last_verified_at), epoch(created_at), epoch(updated_at), impact_band

-- name: list_rows
-- Grain: one row per requested place.
SELECT published_seq, {event_columns}
FROM {schema}.event_versions
WHERE published_seq IN (SELECT unnest($places::BIGINT[]))

-- name: list_events
-- Grain: one row per matching event, in the order of the list.
SELECT {event_columns}
FROM {shown}
WHERE {filters}
ORDER BY {order}

-- name: make_csv_text
-- Grain: a macro of one value, a field of RFC 4180. Once per store.
CREATE OR REPLACE MACRO csv_text(value) AS
    CASE
        WHEN contains(value, ',') OR contains(value, '"') OR contains(value, chr(10))
            OR contains(value, chr(13)) THEN concat('"', replace(value, '"', '""'), '"')
        ELSE coalesce(value, '')
    END

-- name: make_csv_time
-- Grain: a macro of one value, a time in whole seconds. Once per store.
CREATE OR REPLACE MACRO csv_time(value) AS
    CASE
        WHEN value BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59+00' THEN
            concat(replace(left(make_timestamp(epoch_us(value))::VARCHAR, 19), ' ', 'T'), 'Z')
        ELSE ''
    END

-- name: list_csv
-- Grain: one row per matching event, as a record of the export, in the order of the list. Each field
-- that the plan hides is empty in {cells}.
SELECT concat(concat_ws(',', {cells}), chr(13), chr(10))
FROM {shown}
WHERE {filters}
ORDER BY {order}

-- name: version_columns
-- The fields of StoredVersion in their order, but `is_first_major` and `event`.
seq, event_id, version, epoch_us(known_from), epoch_us(known_to), status, epoch(cancelled_at),
change_kinds, changed_fields

-- name: published_feed
-- Grain: one row per version, with its place in the order of publication.
(SELECT *, published_seq AS seq FROM {schema}.event_versions)

-- name: other_feed
-- Grain: one row per version, with its place in the order of the table {other_order}.
(
    SELECT v.*, o.seq
    FROM {schema}.event_versions AS v
    JOIN {other_order} AS o ON o.event_id = v.event_id AND o.version = v.version
)

-- name: list_history
-- Grain: one row per version of an event. With one filter, DuckDB may use an index.
SELECT {version_columns}, {event_columns}
FROM {feed}
WHERE event_id = $event_id
ORDER BY version

-- name: find_cancellation
-- Grain: one row, the cancellation of an event, if it was known at $ts, as a version without event.
SELECT
    0, event_id, 0, epoch_us(first_seen_at), NULL, 'cancelled', epoch(cancelled_at), ['cancelled'],
    [], NULL, NULL, NULL, NULL, NULL, NULL
FROM {schema}.cancellations
WHERE event_id = $event_id AND first_seen_at <= $ts AND cancelled_at IS NOT NULL

-- name: list_changes
-- Grain: one row per version of the feed after a place, in order, with the number of all that follow.
SELECT seq, count(*) OVER ()
FROM {feed}
WHERE seq > $after AND known_from <= $until
    AND ($since IS NULL OR seq > $head OR known_from > $since)
ORDER BY seq
LIMIT $limit

-- name: list_versions
-- Grain: one row per version of the requested places of the feed, in their order.
SELECT {version_columns}, {event_columns}
FROM {feed}
WHERE seq IN (SELECT unnest($seqs::BIGINT[]))
ORDER BY seq

-- name: list_previous
-- Grain: one row per requested place of the feed with a version before it, which it is.
SELECT {version_columns}, {event_columns}
FROM (SELECT *, 0 AS seq FROM {schema}.event_versions)
WHERE (event_id, version) IN (
    SELECT (event_id, version - 1) FROM {feed} WHERE seq IN (SELECT unnest($seqs::BIGINT[]))
)

-- name: list_first_major
-- Grain: one row per requested event that was ever major, with its first such version.
SELECT event_id, min(version)
FROM {schema}.event_versions
WHERE event_id IN (SELECT unnest($event_ids::VARCHAR[]))
    AND date IS NOT NULL
    AND (impact >= $major OR (impact IS NULL AND impact_band = $major_band))
GROUP BY event_id

-- name: find_head
-- Grain: one row, the last place of the feed with a version known at $ts.
SELECT coalesce(max(seq), 0)
FROM {feed}
WHERE known_from <= $ts

-- name: list_ranks
-- Grain: one row per requested coin that was observed until $ts, as the last pull until then shows it,
-- and whether it was missing.
SELECT coalesce(k.coin, a.coin), s.rank, s.tracked, a.coin IS NOT NULL
FROM (
    SELECT DISTINCT coin
    FROM {schema}.coin_snapshots
    WHERE observed_at <= $ts AND ($coins IS NULL OR coin IN (SELECT unnest($coins::VARCHAR[])))
) AS k
LEFT JOIN (
    SELECT * FROM {schema}.coin_snapshots
    WHERE observed_at = (SELECT max(observed_at) FROM {schema}.coin_snapshots WHERE observed_at <= $ts)
) AS s ON s.coin = k.coin
FULL JOIN (
    SELECT coin
    FROM {schema}._almanac.coin_absences
    WHERE missing_since <= $ts AND (missing_to > $ts OR missing_to IS NULL)
) AS a ON a.coin = k.coin

-- name: list_coin_names
-- Grain: one row per coin that was observed or that an event named, and when an event first did.
-- Names and icon are the current ones; the slug is in place of one that is empty.
SELECT
    coalesce(c.slug, n.coin),
    coalesce(c.symbol, l.symbol, c.slug, n.coin),
    coalesce(c.name, l.name, n.coin),
    coalesce(c.icon_url, c.slug, n.coin),
    epoch(n.known_from)
FROM {schema}.coins AS c
FULL JOIN (
    SELECT coin, min(known_from) AS known_from
    FROM (
        SELECT unnest(coins) AS coin, known_from FROM {schema}.event_versions
        UNION ALL
        SELECT coin, NULL FROM {schema}.coin_snapshots
    )
    GROUP BY coin
) AS n ON n.coin = c.slug
LEFT JOIN (
    SELECT coin, any_value(symbol) AS symbol, any_value(name) AS name
    FROM {schema}.event_coins
    GROUP BY coin
) AS l ON l.coin = n.coin

-- name: count_by_coin
-- Grain: one row per requested coin with events in the window.
SELECT
    coin,
    count(*),
    count(*) FILTER (impact >= $major OR (impact IS NULL AND impact_band = $major_band)),
    max(impact)
FROM (SELECT unnest(coins) AS coin, impact, impact_band FROM {shown})
WHERE coin IN (SELECT unnest($coins::VARCHAR[]))
GROUP BY coin

-- name: list_categories
-- Grain: one row per category, of the list or named by an event, and when it became known. If the
-- list lacks a name, its id is made from it.
SELECT
    coalesce(c.id, nullif(trim(regexp_replace(lower(n.category), '[^a-z0-9]+', '-', 'g'), '-'), ''), n.category),
    coalesce(c.name, n.category),
    epoch(least(c.first_seen_at, n.known_from))
FROM (
    SELECT category, min(known_from) AS known_from
    FROM (SELECT unnest(categories) AS category, known_from FROM {schema}.event_versions)
    GROUP BY category
) AS n
FULL JOIN {schema}.categories AS c ON c.name = n.category
ORDER BY c.id, n.category, c.name

-- name: list_cancelled
-- Grain: one row: the number of cancellations that happened or became known since a time, and the
-- first after a key. An event of the list of cancellations may not be known, or be restored since.
SELECT
    count(*),
    min((at_s, event_id), $limit::BIGINT) FILTER (
        $after_id IS NULL OR at_s > $after_at::DOUBLE
        OR (at_s = $after_at::DOUBLE AND event_id > $after_id)
    )
FROM (
    SELECT event_id, floor(epoch(cancelled_at)) AS at_s, known_from
    FROM {schema}.event_versions
    WHERE {known} AND status = 'cancelled' AND cancelled_at IS NOT NULL
    UNION ALL
    SELECT event_id, floor(epoch(cancelled_at)), first_seen_at
    FROM {schema}.cancellations
    WHERE first_seen_at <= $ts AND cancelled_at IS NOT NULL
        AND event_id NOT IN (
            SELECT event_id
            FROM {schema}.event_versions
            WHERE {known} AND event_id IN (SELECT event_id FROM {schema}.cancellations)
        )
)
WHERE at_s >= $since_s OR known_from >= $since

-- name: find_span
-- Grain: one row: the first pull of events, the last of any feed, the last change, and the number of
-- current events.
SELECT
    (SELECT epoch_us(min(observed_at)) FROM {schema}.batches
     WHERE status = 'merged' AND feed IN ('export', 'events', 'event', 'deliveries')),
    (SELECT epoch_us(max(observed_at)) FROM {schema}.batches WHERE status = 'merged'),
    (SELECT epoch_us(max(known_from)) FROM {schema}.event_versions),
    (SELECT count(*) FROM {schema}.event_versions WHERE known_to IS NULL)

-- name: find_last_pull
-- Grain: one row, the last pull until $ts, or the last change if that is later: deliveries become
-- known before they are merged.
SELECT epoch_us(greatest(
    (SELECT max(observed_at) FROM {schema}.batches WHERE status = 'merged' AND observed_at <= $ts),
    (SELECT max(known_from) FROM {schema}.event_versions WHERE known_from <= $ts)
))
