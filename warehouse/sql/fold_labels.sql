-- The newest symbol and name of each coin seen in an event. Grain: slug. Twice gives the same.
MERGE INTO labels AS l
USING (
    SELECT
        coin.slug AS slug,
        arg_max(coin.symbol, (content_at, position)) AS symbol,
        arg_max(coin.name, (content_at, position)) AS name,
        max(content_at) AS content_at
    FROM (SELECT unnest(coin_names) AS coin, content_at, position FROM wave)
    WHERE coin.slug IS NOT NULL
    GROUP BY ALL
) AS w
ON l.slug = w.slug
WHEN MATCHED AND w.content_at >= l.content_at
    THEN UPDATE SET symbol = w.symbol, name = w.name, content_at = w.content_at
WHEN NOT MATCHED THEN INSERT (slug, symbol, name, content_at)
    VALUES (w.slug, w.symbol, w.name, w.content_at);
