-- Coins and categories as last shown, the names of coins in events, and the spans watched by
-- complete observations. `coin_snapshots` has the coins of each pull that ranks them.
--
--     coins       is_newest_pull → merge_coins
--                 → mark_coins_unseen → remove_from_snapshot → add_to_snapshot   (if it ranks)
--                 → begin_coin_absences → end_coin_absences
--     categories  merge_categories → list_category_names → watch_span
--     events      merge_labels
--
-- Aliases: w rows of the observation, c coins or categories as last shown, l `coin_labels`,
-- r `rejected`.

-- name: is_newest_pull
-- Whether no earlier pull of coins has newer content. Grain: one row.
SELECT coalesce(bool_and(content_at <= $content_at), true)
FROM batches
WHERE feed = 'coins' AND status = 'merged';

-- name: merge_coins
-- Coins as a pull shows them; an older pull changes nothing. Grain: slug. Run twice: the same.
-- Parameters: $ranks, whether it is a complete pull: others change no rank, since two coins could then
-- have the same.
MERGE INTO coins AS c
USING (
    SELECT * REPLACE (if($ranks, rank, NULL) AS rank)
    FROM seen_coins
    QUALIFY row_number() OVER (PARTITION BY slug ORDER BY position DESC) = 1
) AS w
ON c.slug = w.slug
WHEN MATCHED AND $content_at >= c.content_at THEN UPDATE SET
    symbol = w.symbol, name = w.name, rank = if($ranks, w.rank, c.rank), tracked = w.tracked,
    icon_url = w.icon_url, upcoming_count = w.upcoming_count, major_count = w.major_count,
    peak_impact = w.peak_impact, last_seen_at = $observed_at, missing_since = NULL,
    content_at = $content_at
WHEN NOT MATCHED THEN INSERT (
    slug, symbol, name, rank, tracked, icon_url, upcoming_count, major_count, peak_impact,
    first_seen_at, last_seen_at, missing_since, content_at
) VALUES (
    w.slug, w.symbol, w.name, w.rank, w.tracked, w.icon_url, w.upcoming_count, w.major_count,
    w.peak_impact, $observed_at, $observed_at, NULL, $content_at
);

-- name: mark_coins_unseen
-- Coins that a complete pull does not show have no known rank, and are missing if it is of all coins.
-- A coin whose row was rejected is not missing. Grain: slug. Run twice: the same.
-- Parameters: $is_proof, whether the pull shows all coins, and rejected no row of an unknown coin.
UPDATE coins SET
    rank = NULL,
    missing_since = CASE
        WHEN $is_proof AND content_at < $content_at AND NOT EXISTS (
            SELECT 1 FROM rejected AS r WHERE contains(r.raw, '"' || coins.slug || '"')
        ) THEN coalesce(missing_since, $observed_at)
        ELSE missing_since
    END
WHERE slug NOT IN (SELECT slug FROM seen_coins);

-- name: list_top_coins
-- The coins that a plan with a coverage shows, as last ranked. Grain: slug.
SELECT slug FROM coins WHERE rank <= $top;

-- name: remove_from_snapshot
-- A later pull at the same time replaces the whole snapshot.
DELETE FROM coin_snapshots WHERE observed_at = $observed_at;

-- name: add_to_snapshot
-- The coins as this pull shows them. Grain: slug. Once per observation.
INSERT INTO coin_snapshots BY NAME
SELECT
    $observed_at::DATE AS observed_date, slug AS coin, rank, tracked, upcoming_count, major_count,
    peak_impact, $observed_at AS observed_at, $batch_id AS batch_id
FROM seen_coins
QUALIFY row_number() OVER (PARTITION BY slug ORDER BY position DESC) = 1;

-- name: begin_coin_absences
-- Log the coins that began to be missing. Grain: coin. Run twice: the same.
INSERT INTO _almanac.coin_absences
SELECT slug, missing_since, NULL
FROM coins
WHERE missing_since IS NOT NULL
    AND slug NOT IN (SELECT coin FROM _almanac.coin_absences WHERE missing_to IS NULL);

-- name: end_coin_absences
-- Log the coins that are shown again. Grain: coin. Run twice: the same.
UPDATE _almanac.coin_absences SET missing_to = $observed_at
WHERE missing_to IS NULL AND coin NOT IN (SELECT slug FROM coins WHERE missing_since IS NOT NULL);

-- name: merge_categories
-- Categories as a pull shows them. Grain: id. Run twice: the same.
MERGE INTO categories AS c
USING (
    SELECT * FROM seen_categories QUALIFY row_number() OVER (PARTITION BY id ORDER BY position DESC) = 1
) AS w
ON c.id = w.id
WHEN MATCHED THEN UPDATE SET
    name = w.name, last_seen_at = $observed_at
WHEN NOT MATCHED THEN INSERT (id, name, first_seen_at, last_seen_at)
    VALUES (w.id, w.name, $observed_at, $observed_at);

-- name: list_category_names
-- The name of each known category. Grain: id.
SELECT id, name FROM categories;

-- name: watch_span
-- A span watched by complete pulls, and since when. Grain: filter and span of event dates.
INSERT INTO watched_spans VALUES ($coins, $categories, $lower, $upper, $since);

-- name: merge_labels
-- The newest symbol and name of each coin seen in an event. Grain: slug. Run twice: the same.
MERGE INTO coin_labels AS l
USING (
    SELECT
        coin.slug AS slug,
        arg_max(coin.symbol, (content_at, position)) AS symbol,
        arg_max(coin.name, (content_at, position)) AS name,
        max(content_at) AS content_at
    FROM (SELECT unnest(coin_names) AS coin, content_at, position FROM incoming)
    WHERE coin.slug IS NOT NULL
    GROUP BY ALL
) AS w
ON l.slug = w.slug
WHEN MATCHED AND w.content_at >= l.content_at
    THEN UPDATE SET symbol = w.symbol, name = w.name, content_at = w.content_at
WHEN NOT MATCHED THEN INSERT (slug, symbol, name, content_at)
    VALUES (w.slug, w.symbol, w.name, w.content_at);
