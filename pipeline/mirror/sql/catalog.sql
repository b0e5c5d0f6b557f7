-- The catalog of a published file as the service's interface shows it, as known at a time.
--
--     event_versions ─▶ known_at ─┬─▶ the events list, single events, the export
--     coin_snapshots ─────────────┤   coins at that time
--     cancellations ──────────────┘   cancellations at that time
--
-- The published file is attached as `published`; the macros are in memory.

-- name: make_versions
-- Grain: a macro of one row per version. Once per file.
-- Its first columns are the fields of StoredEvent in their order; times are in seconds.
CREATE MACRO versions() AS TABLE
SELECT
    event_id,
    slug,
    coalesce(title, '') AS title,
    description,
    coalesce(displayed_date, '') AS displayed_date,
    floor(epoch(date))::BIGINT AS date_s,
    floor(epoch(date_end))::BIGINT AS date_end_s,
    coalesce(date_type, '') AS date_type,
    coalesce(is_estimated, false) AS is_estimated,
    categories, coins, impact, impact_summary, source_url, snapshot_url,
    floor(epoch(last_verified_at))::BIGINT AS last_verified_at_s,
    floor(epoch(created_at))::BIGINT AS created_at_s,
    floor(epoch(updated_at))::BIGINT AS updated_at_s,
    impact_band,
    date, date_end, status,
    floor(epoch(cancelled_at))::BIGINT AS cancelled_at_s,
    version, known_from, known_to, change_kinds, changed_fields,
    rowid AS place
FROM published.event_versions

-- name: make_known_at
-- Grain: a macro of one row per event known at `ts`, as it was known then. Once per file.
CREATE MACRO known_at(ts) AS TABLE
SELECT *, rowid AS place
FROM published.event_versions
WHERE known_from <= ts::TIMESTAMPTZ AND (known_to > ts::TIMESTAMPTZ OR known_to IS NULL)

-- name: make_has_text
-- Grain: a macro of one value, whether a text contains `keyword` in any case. Once per file.
-- `casefold` is Python's, and only called for texts that are not ASCII: for others it is `lower`.
CREATE MACRO has_text(value, keyword) AS
    CASE
        WHEN strlen(value) = length(value) THEN contains(lower(value), keyword)
        ELSE contains(casefold(value), keyword)
    END

-- name: make_matching
-- Grain: a macro of one row per event that the list shows at `ts` and that matches the filters;
-- NULL is no filter. Once per file.
CREATE MACRO matching(ts, least, most, slugs, names, keyword, in_description, score, top) AS TABLE
SELECT place, event_id, date, coins, impact, impact_band
FROM known_at(ts)
WHERE status = 'scheduled'
    AND date IS NOT NULL
    AND (most IS NULL OR date <= most::TIMESTAMPTZ)
    AND coalesce(date_end, date) >= least::TIMESTAMPTZ
    AND (slugs IS NULL OR list_has_any(coins, slugs::VARCHAR[]))
    AND (names IS NULL OR list_has_any(categories, names::VARCHAR[]))
    AND (score IS NULL OR impact >= score::DOUBLE)
    AND (top IS NULL OR list_has_any(coins, top::VARCHAR[]))
    AND (
        keyword IS NULL
        OR has_text(title, keyword)
        OR (in_description AND has_text(description, keyword))
    )

-- name: list_places
-- Grain: one row per matching event after a key, in the order of the list, with the number of all
-- that match. Any number of times.
SELECT place, total
FROM (
    SELECT
        place,
        event_id,
        floor(epoch(date))::BIGINT AS date_s,
        CASE WHEN $by_impact THEN coalesce(-impact, 1.0) ELSE 0.0 END AS score,
        count(*) OVER () AS total
    FROM matching($ts, $least, $most, $slugs, $names, $keyword, $in_description, $score, $top)
)
WHERE $after_id IS NULL
    OR (score, date_s, event_id) > ($after_score::DOUBLE, $after_date::BIGINT, $after_id)
ORDER BY score, date_s, event_id
LIMIT $limit

-- name: find_place
-- Grain: the event, if the list shows it. Any number of times.
SELECT place
FROM known_at($ts)
WHERE event_id = $event_id AND status = 'scheduled' AND date IS NOT NULL

-- name: list_rows
-- Grain: one row per requested place. Any number of times.
SELECT *
FROM versions()
WHERE place IN (SELECT unnest($places::BIGINT[]))

-- name: list_all
-- Grain: one row per event that the list shows, with the fields of StoredEvent alone: Python takes long to read
-- the times of the others. Any number of times.
SELECT * EXCLUDE (
    date, date_end, status, cancelled_at_s, version, known_from, known_to, change_kinds, changed_fields, place
)
FROM versions()
WHERE known_from <= $ts::TIMESTAMPTZ AND (known_to > $ts::TIMESTAMPTZ OR known_to IS NULL)
    AND status = 'scheduled' AND date IS NOT NULL

-- name: list_matching
-- Grain: one row per matching event, in the order of the list. Any number of times.
SELECT v.*
FROM versions() AS v
SEMI JOIN (
    SELECT place
    FROM matching($ts, $least, $most, $slugs, $names, $keyword, $in_description, $score, $top)
) AS m ON m.place = v.place
ORDER BY CASE WHEN $by_impact THEN coalesce(-v.impact, 1.0) ELSE 0.0 END, v.date_s, v.event_id

-- name: count_by_coin
-- Grain: one row per coin with events in the window. Any number of times.
SELECT
    coin,
    count(*)::INTEGER,
    (count(*) FILTER (
        WHERE impact >= $major OR (impact IS NULL AND impact_band = $major_band)
    ))::INTEGER,
    max(impact)
FROM (
    SELECT unnest(coins) AS coin, impact, impact_band
    FROM matching($ts, $least, $most, NULL, NULL, NULL, false, NULL, $top)
)
GROUP BY coin

-- name: list_cancelled
-- Grain: one row per event that was known as cancelled, with the time since when. Any number of times.
-- An event of the list of cancellations may not be known, or may be restored since.
SELECT floor(epoch(cancelled_at))::BIGINT, event_id, known_from
FROM known_at($ts)
WHERE status = 'cancelled' AND cancelled_at IS NOT NULL
UNION ALL
SELECT floor(epoch(c.cancelled_at))::BIGINT, c.event_id, c.first_seen_at
FROM published.cancellations AS c
ANTI JOIN (SELECT event_id FROM known_at($ts)) AS k ON k.event_id = c.event_id
WHERE c.first_seen_at <= $ts::TIMESTAMPTZ AND c.cancelled_at IS NOT NULL
ORDER BY ALL

-- name: list_coins
-- Grain: one row per coin that was known, as last observed then; symbol, name and icon are the
-- current ones. Coins that only events named come last. Any number of times.
SELECT
    s.coin,
    coalesce(c.symbol, n.symbol, ''),
    coalesce(c.name, n.name, s.coin),
    s.rank,
    coalesce(s.tracked, false),
    coalesce(c.icon_url, '')
FROM (
    SELECT coin, unnest(arg_max(struct_pack(rank, tracked), observed_at))
    FROM published.coin_snapshots
    WHERE observed_at <= $ts::TIMESTAMPTZ
    GROUP BY coin
    UNION ALL
    SELECT coin, NULL, NULL
    FROM (
        SELECT DISTINCT unnest(coins) AS coin
        FROM published.event_versions
        WHERE known_from <= $ts::TIMESTAMPTZ
    ) AS linked
    ANTI JOIN (
        SELECT coin FROM published.coin_snapshots WHERE observed_at <= $ts::TIMESTAMPTZ
    ) AS seen ON seen.coin = linked.coin
) AS s
LEFT JOIN published.coins AS c ON c.slug = s.coin
LEFT JOIN (
    SELECT coin, any_value(symbol) AS symbol, any_value(name) AS name
    FROM published.event_coins
    GROUP BY coin
) AS n ON n.coin = s.coin

-- name: list_coin_times
-- Grain: one row per time at which the coins changed, in order. Once per file.
SELECT observed_at
FROM published.coin_snapshots
UNION
SELECT min(known_from)
FROM (SELECT unnest(coins) AS coin, known_from FROM published.event_versions)
GROUP BY coin
ORDER BY ALL

-- name: list_categories
-- Grain: one row per category, of the list or named by an event, and when it became known.
-- Once per file. The id of a name is the same at any time.
SELECT c.id, coalesce(c.name, n.category), least(c.first_seen_at, n.known_from)
FROM (
    SELECT category, min(known_from) AS known_from
    FROM (SELECT unnest(categories) AS category, known_from FROM published.event_versions)
    GROUP BY category
) AS n
FULL JOIN published.categories AS c ON c.name = n.category
ORDER BY ALL

-- name: list_category_ids
-- Grain: one row per category of the list. Once per file.
SELECT name, id
FROM published.categories

-- name: list_times
-- Grain: one row per time at which something became known, in order. Once per file.
SELECT DISTINCT known_at
FROM (
    SELECT known_from AS known_at FROM published.event_versions
    UNION ALL
    SELECT observed_at FROM published.coin_snapshots
    UNION ALL
    SELECT first_seen_at FROM published.cancellations
    UNION ALL
    SELECT first_seen_at FROM published.categories
)
ORDER BY known_at

-- name: find_bounds
-- Grain: one row: the first pull of events, the last, the last change, and the number of events.
-- Once per file.
SELECT
    (SELECT min(observed_at) FROM published.batches
     WHERE status = 'merged' AND feed IN ('export', 'events', 'event', 'deliveries')),
    (SELECT max(observed_at) FROM published.batches WHERE status = 'merged'),
    (SELECT max(known_from) FROM published.event_versions),
    (SELECT count(*) FROM published.event_versions WHERE known_to IS NULL)

-- name: find_last_pull
-- Grain: one row, the last pull until a time. Any number of times.
SELECT max(observed_at)
FROM published.batches
WHERE status = 'merged' AND observed_at <= $ts::TIMESTAMPTZ

-- name: list_published_days
-- Grain: one row per observed day, with its content. Any number of times.
SELECT day, content
FROM published.state.days

-- name: find_publication
-- Grain: one row, when the file was published, by the machine's clock. Once per file.
SELECT value
FROM published._almanac.facts
WHERE name = 'published_at'

-- name: list_first_batches
-- Grain: one row per batch, of the first thousand. Once per publication.
SELECT batch_id
FROM published.batches
ORDER BY observed_at, batch_id
LIMIT 1000

-- name: count_batches
-- Grain: one row, the number of the given batches that the file has. Once per publication.
SELECT count(*)
FROM published.batches
WHERE list_contains($batches, batch_id)

-- name: list_versions_of
-- Grain: one row per version that became known on the given days, with a hash of its content, in
-- order of knowledge. Any number of times. Hashes are kept for years: they do not depend on the
-- zone or the version of DuckDB, and a new field changes only those of versions that have it.
SELECT
    epoch_us(known_from),
    event_id,
    version,
    unhex(md5(concat(
        status, nul, epoch_us(cancelled_at),
        {each compared: CASE WHEN @name IS NOT NULL THEN concat(nul, '@name', nul, @digest) END}
    )))
FROM published.event_versions, (SELECT chr(0) AS nul)
WHERE (known_from AT TIME ZONE 'UTC')::DATE IN (SELECT unnest($days::DATE[]))
ORDER BY known_from, event_id, version

-- name: find_versions
-- Grain: one row per requested version. Any number of times.
-- The places are found first, so that the other columns are read in a few row groups only.
SELECT *
FROM versions()
WHERE place IN (
    SELECT v.place
    FROM versions() AS v
    SEMI JOIN (
        SELECT unnest($event_ids::VARCHAR[]) AS event_id, unnest($numbers::INTEGER[]) AS version
    ) AS r ON r.event_id = v.event_id AND r.version = v.version
)

-- name: list_history
-- Grain: one row per version of an event that was known at `ts`. Any number of times.
SELECT *
FROM versions()
WHERE event_id = $event_id AND known_from <= $ts::TIMESTAMPTZ
ORDER BY version

-- name: list_first_major
-- Grain: one row per requested event that was ever major, with its first such version. Any number
-- of times.
SELECT v.event_id, min(v.version)
FROM versions() AS v
SEMI JOIN (SELECT unnest($event_ids::VARCHAR[]) AS event_id) AS r ON r.event_id = v.event_id
WHERE v.date IS NOT NULL
    AND (v.impact >= $major OR (v.impact IS NULL AND v.impact_band = $major_band))
GROUP BY v.event_id

-- name: list_order
-- Grain: one row per version that became known after a time, until another, in order of knowledge.
-- Once per replay.
SELECT known_from, event_id, version
FROM published.event_versions
WHERE known_from > $after::TIMESTAMPTZ AND known_from <= $until::TIMESTAMPTZ
ORDER BY known_from, event_id, version

-- name: list_versions_between
-- Grain: one row per version that became known after a time, until another, in order of knowledge.
-- Any number of times.
SELECT *
FROM versions()
WHERE known_from > $after::TIMESTAMPTZ AND known_from <= $until::TIMESTAMPTZ
ORDER BY known_from, event_id, version

-- name: list_never_known
-- Grain: one row per column whose value is unknown in every version. Once per file.
SELECT name
FROM (SELECT unnest(unknown_fields) AS name FROM published.event_versions)
GROUP BY name
HAVING count(*) = (SELECT count(*) FROM published.event_versions)
ORDER BY name
