-- Coins and categories as last shown, the names of coins in events, and the spans watched by
-- complete observations. `coin_snapshots` has the coins of each day.
--
--     coins       merge_coins → mark_coins_missing | mark_coins_outranked
--                 → remove_from_snapshot → add_to_snapshot
--     categories  merge_categories → list_category_names → watch_span
--     events      merge_labels
--
-- Aliases: w rows of the observation, c coins or categories as last shown, l `coin_labels`,
-- r `rejected`.

-- name: merge_coins
-- Coins as a pull shows them; an older pull changes nothing. Grain: slug. Run twice: the same.
MERGE INTO coins AS c
USING (
    SELECT * FROM seen_coins QUALIFY row_number() OVER (PARTITION BY slug ORDER BY position DESC) = 1
) AS w
ON c.slug = w.slug
WHEN MATCHED AND $content_at >= c.content_at THEN UPDATE SET
    symbol = w.symbol, name = w.name, rank = w.rank, tracked = w.tracked, icon_url = w.icon_url,
    upcoming_count = w.upcoming_count, major_count = w.major_count, peak_impact = w.peak_impact,
    last_seen_at = $observed_at, missing_since = NULL, content_at = $content_at
WHEN NOT MATCHED THEN INSERT (
    slug, symbol, name, rank, tracked, icon_url, upcoming_count, major_count, peak_impact,
    first_seen_at, last_seen_at, missing_since, content_at
) VALUES (
    w.slug, w.symbol, w.name, w.rank, w.tracked, w.icon_url, w.upcoming_count, w.major_count,
    w.peak_impact, $observed_at, $observed_at, NULL, $content_at
);

-- name: mark_coins_missing
-- Coins that a complete pull of all coins no longer shows. Grain: slug. Run twice: the same.
-- A coin whose row was rejected is not missing.
UPDATE coins SET missing_since = coalesce(missing_since, $observed_at)
WHERE content_at < $content_at
  AND slug NOT IN (SELECT slug FROM seen_coins)
  AND NOT EXISTS (
      SELECT 1 FROM rejected AS r WHERE contains(r.raw, '"' || coins.slug || '"')
  );

-- name: mark_coins_outranked
-- Coins that a complete pull of the highest ranks no longer shows: their rank is lower now, but not
-- known. Grain: slug. Run twice: the same. Parameters: $top, the last rank shown.
UPDATE coins SET rank = NULL
WHERE rank <= $top AND content_at < $content_at
  AND slug NOT IN (SELECT slug FROM seen_coins)
  AND NOT EXISTS (
      SELECT 1 FROM rejected AS r WHERE contains(r.raw, '"' || coins.slug || '"')
  );

-- name: list_top_coins
-- The coins that a plan with a coverage shows, as last ranked. Grain: slug.
SELECT slug FROM coins WHERE rank <= $top AND missing_since IS NULL;

-- name: remove_from_snapshot
-- A later pull on the same day replaces the coins that it shows. Grain: slug.
DELETE FROM coin_snapshots
WHERE observed_date = $observed_at::DATE AND coin IN (SELECT slug FROM seen_coins);

-- name: add_to_snapshot
-- The coins of the day as this pull shows them. Grain: slug. Once per observation.
INSERT INTO coin_snapshots BY NAME
SELECT
    $observed_at::DATE AS observed_date, slug AS coin, rank, tracked, upcoming_count, major_count,
    peak_impact, $observed_at AS observed_at, $batch_id AS batch_id
FROM seen_coins
QUALIFY row_number() OVER (PARTITION BY slug ORDER BY position DESC) = 1;

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
