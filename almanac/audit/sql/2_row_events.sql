-- Which version of its event each use was decided on.
--
--     rows ─▶ coin_rows ─▶ candidates, not_covered ─▶ uses_of_coins ─▶ uses
--     uses ─▶ versions ─▶ places ─▶ unplaced
--
-- A use is a row of the caller with the event that it names, or with one of the events that its coin
-- and date may name. A use with a verdict is not judged any further.

-- name: rows
-- Grain: one row per row of `given` (index, row, event_id, coin, broken: why the row can't be read,
-- is_unused: it used no event, and its decision as read).
-- Parameters: $now. Run twice: the same rows.
SELECT
    index, row, event_id, coin, decided_at,
    CASE
        WHEN broken IS NULL AND is_unused THEN 'no_event'
        WHEN decided_at IS NULL THEN 'unreadable'
        WHEN decided_at > $now THEN 'after_last_pull'
        WHEN event_id IS NULL AND coin IS NULL THEN 'unreadable'
    END AS verdict,
    CASE
        WHEN broken IS NOT NULL THEN broken
        WHEN is_unused THEN NULL
        WHEN decided_at IS NULL AND is_empty THEN 'it has no decision time'
        WHEN decided_at IS NULL THEN 'its decision time can''t be read; expected ISO 8601, as 2026-03-02T12:00:00Z; an abbreviation of a zone means several'
        WHEN decided_at > $now THEN 'its decision is still to come'
        WHEN event_id IS NULL AND coin IS NULL THEN 'it has neither an event_id nor a coin'
    END AS reason
FROM (
    SELECT
        index, row, broken, is_unused, instant AS decided_at, is_empty,
        nullif(trim(trim(event_id, E'\t\r\n ')), '') AS event_id, nullif(trim(coin), '') AS coin
    FROM given
)

-- name: ids_in_any_case
-- Grain: one row per text of $ids that is the id of one event, with this id: the same text, else one that
-- differs in case alone.
-- Parameters: $ids. Run twice: the same rows.
SELECT i.given, coalesce(min(e.event_id) FILTER (e.event_id = i.given), min(e.event_id)) AS event_id
FROM (SELECT unnest($ids::VARCHAR[]) AS given) AS i
JOIN (
    SELECT event_id FROM event_versions
    UNION
    SELECT event_id FROM cancellations
) AS e ON lower(e.event_id) = lower(trim(i.given))
GROUP BY i.given
HAVING count(*) = 1 OR bool_or(e.event_id = i.given)

-- name: coin_rows
-- Grain: one row per row of `named_coins`, with the slugs of the coins that have the name. `slugs` has
-- the coins of each name.
-- Parameters: none. Run twice: the same rows.
SELECT
    n.index, n.row, n.decided_at, n.key, n.loose, n.instant, s.slugs,
    CASE
        WHEN NOT n.is_read THEN 'unreadable'
        WHEN n.key = 0 THEN 'unreadable'
        WHEN s.coin IS NULL THEN 'unknown_event'
    END AS verdict,
    CASE
        WHEN NOT n.is_read THEN 'its date can''t be read'
        WHEN n.key = 0 THEN 'it has a coin, but neither an event_id nor a date'
        WHEN s.coin IS NULL THEN 'no coin has this slug, ticker, name or pair'
    END AS reason
FROM named_coins AS n
LEFT JOIN slugs AS s ON s.coin = n.coin

-- name: candidates
-- Grain: one row per row of `coin_rows`, event that had its coin in any version, and its date, and coin:
-- its name may be that of several.
-- Parameters: $claimed, whether claimed versions count. Run twice: the same rows.
SELECT DISTINCT r.index, k.event_id, k.slug
FROM (
    SELECT index, unnest(slugs) AS slug, key
    FROM (SELECT index, slugs, unnest([key, loose]) AS key FROM coin_rows WHERE verdict IS NULL)
) AS r
JOIN (
    SELECT event_id, slug, unnest([
        hash('instant', epoch_us(date)), hash('day', (date AT TIME ZONE 'UTC')::DATE)
    ]) AS key
    FROM (
        -- The coins of one version and the date of another: either may have changed later.
        SELECT d.event_id, d.date, c.slug
        FROM (
            SELECT event_id, date FROM event_versions
            WHERE known_to IS DISTINCT FROM known_from AND date IS NOT NULL
            UNION
            SELECT event_id, date FROM event_claims WHERE $claimed AND date IS NOT NULL
        ) AS d
        JOIN (
            SELECT event_id, unnest(coins) AS slug FROM event_versions
            WHERE known_to IS DISTINCT FROM known_from
            UNION
            SELECT event_id, unnest(coins) FROM event_claims WHERE $claimed
        ) AS c ON c.event_id = d.event_id
        WHERE c.slug IN (SELECT unnest(slugs) FROM coin_rows)
    )
) AS k ON k.key = r.key AND k.slug = r.slug

-- name: covered_days
-- Grain: one row per unbroken range of event dates that complete pulls without a filter covered.
-- Parameters: none. Run twice: the same rows.
SELECT min(lower) AS lower, max(upper) AS upper
FROM (
    SELECT lower, upper, sum(is_new) OVER (ORDER BY lower, upper) AS range
    FROM (
        SELECT
            lower, upper,
            if(lower <= max(upper) OVER (
                ORDER BY lower, upper ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) + INTERVAL 1 SECOND, 0, 1) AS is_new
        FROM (
            SELECT DISTINCT
                coalesce(lower, TIMESTAMPTZ '1900-01-01 00:00:00+00') AS lower,
                coalesce(upper, TIMESTAMPTZ '2200-12-31 00:00:00+00') AS upper
            FROM coverage
            WHERE feed IN ('export', 'events') AND coins IS NULL AND categories IS NULL
        )
    )
)
GROUP BY range
ORDER BY lower

-- name: not_covered
-- Grain: one row per row of `coin_rows` whose date no pull covered.
-- Parameters: none. Run twice: the same rows.
SELECT r.index
FROM coin_rows AS r
ASOF LEFT JOIN covered AS c ON c.lower <= r.instant
WHERE r.instant IS NOT NULL AND coalesce(c.upper < r.instant, true)

-- name: uses_of_coins
-- Grain: one row per row of `coin_rows` and candidate; one without an event where there is none, or where
-- coins of one name have candidates.
-- Parameters: $last_pull_at. Run twice: the same rows.
SELECT
    r.index, r.row, c.event_id, r.decided_at,
    coalesce(c.slug, if(len(r.slugs) = 1, r.slugs[1], NULL)) AS slug,
    CASE
        WHEN r.verdict IS NOT NULL THEN r.verdict
        WHEN c.event_id IS NOT NULL THEN NULL
        WHEN len(r.slugs) > 1 THEN 'unreadable'
        WHEN n.index IS NOT NULL THEN 'not_watched'
        WHEN r.decided_at > $last_pull_at THEN 'after_last_pull'
        ELSE 'unknown_event'
    END AS verdict,
    CASE
        WHEN r.verdict IS NOT NULL THEN r.reason
        WHEN c.event_id IS NOT NULL THEN NULL
        WHEN len(r.slugs) > 1 THEN 'several coins have this ticker or name; use the slug: '
            || 'slug:' || array_to_string(r.slugs[:5], ' or slug:')
        WHEN n.index IS NOT NULL THEN 'no pull covered its date'
        ELSE 'no event of this coin ever had this date'
    END AS reason
FROM coin_rows AS r
LEFT JOIN (
    FROM candidates
    QUALIFY min(slug) OVER (PARTITION BY index) = max(slug) OVER (PARTITION BY index)
) AS c ON c.index = r.index
LEFT JOIN not_covered AS n ON n.index = r.index

-- name: uses
-- Grain: one row per use: of `rows` those without a coin to search, and all of `coin_uses`. `slugs` has
-- the coins of each name in `rows`; of several coins it is the one that the event had at
-- any time, if it had one alone.
-- Parameters: none. Run twice: the same rows.
SELECT
    r.index, r.row, r.event_id, r.decided_at, if(s.coins = 1, s.slug, o.slug) AS slug, r.verdict,
    r.reason
FROM rows AS r
LEFT JOIN slugs AS s ON s.coin = r.coin
LEFT JOIN (
    SELECT s.coin, e.event_id, min(e.slug) AS slug
    FROM (SELECT coin, unnest(slugs) AS slug FROM slugs WHERE coins > 1) AS s
    JOIN (SELECT DISTINCT event_id, unnest(coins) AS slug FROM event_versions) AS e
        ON e.slug = s.slug
    GROUP BY s.coin, e.event_id
    HAVING count(*) = 1
) AS o ON o.coin = r.coin AND o.event_id = r.event_id
WHERE r.verdict IS NOT NULL OR r.event_id IS NOT NULL
UNION ALL BY NAME
SELECT * FROM coin_uses
ORDER BY index, event_id

-- name: versions
-- Grain: one row per version of an event of `uses` that was known at some time.
-- Parameters: $claimed, whether claimed versions count. Run twice: the same rows.
SELECT
    (row_number() OVER (ORDER BY event_id, version) - 1)::INTEGER AS place,
    (dense_rank() OVER (ORDER BY event_id) - 1)::INTEGER AS event_number,
    event_id, version, known_from, known_basis
FROM (
    SELECT event_id, version, known_from, known_basis
    FROM event_versions
    WHERE known_to IS DISTINCT FROM known_from
    UNION ALL
    SELECT event_id, version, known_from, known_basis
    FROM event_claims
    WHERE $claimed AND known_to > known_from
) AS v
WHERE event_id IN (SELECT event_id FROM uses WHERE verdict IS NULL)
ORDER BY place

-- name: places
-- Grain: one row per row of `uses` without a verdict whose event was known at its decision, with the
-- version of then. No two versions of an event that were known at some time begin at the same
-- instant, so there are no ties.
-- Parameters: none. Run twice: the same rows, in any order.
SELECT u.use, v.place, v.event_number
FROM (
    SELECT u.use, u.decided_at, e.event_number
    FROM uses AS u
    JOIN (SELECT DISTINCT event_id, event_number FROM versions) AS e ON e.event_id = u.event_id
    WHERE u.verdict IS NULL
) AS u
ASOF JOIN versions AS v
    ON v.event_number = u.event_number AND v.known_from <= u.decided_at

-- name: unplaced
-- Grain: one row per row of `unknown` (use, event_id, decided_at): why its event was not known.
-- The service's own word that it created an event after the decision is evidence even where nobody
-- watched. A creation more than a day after the first sighting is not believed.
-- Parameters: $last_pull_at; $claimed. Run twice: the same rows.
SELECT
    p.use,
    CASE
        WHEN e.event_id IS NULL AND c.event_id IS NOT NULL THEN 'not_watched'
        WHEN e.event_id IS NULL AND coalesce(p.decided_at > $last_pull_at, true)
            THEN 'after_last_pull'
        WHEN e.event_id IS NULL THEN 'unknown_event'
        WHEN e.is_created OR e.created_at > p.decided_at THEN 'not_announced'
        ELSE 'not_watched'
    END AS verdict,
    if(verdict = 'not_announced', e.known_from, NULL) AS knowable_from,
    CASE
        WHEN e.event_id IS NULL AND c.event_id IS NOT NULL
            THEN 'only its cancellation was ever seen'
        WHEN verdict = 'not_watched' THEN 'it was first seen at '
            || strftime(e.known_from AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%SZ')
            || ', when it existed already'
    END AS reason
FROM unknown AS p
LEFT JOIN (
    SELECT
        f.event_id,
        list_contains(f.change_kinds, 'created') AS is_created,
        if(f.created_at <= f.known_from + INTERVAL 1 DAY, f.created_at, NULL) AS created_at,
        coalesce(l.known_from, f.known_from) AS known_from
    FROM event_versions AS f
    LEFT JOIN (
        SELECT event_id, min(known_from) AS known_from
        FROM event_claims WHERE $claimed GROUP BY event_id
    ) AS l ON l.event_id = f.event_id
    WHERE f.version = 1 AND f.event_id IN (SELECT event_id FROM unknown)
) AS e ON e.event_id = p.event_id
LEFT JOIN cancellations AS c ON c.event_id = p.event_id
