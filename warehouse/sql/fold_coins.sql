-- Coins as a look shows them; an older look changes nothing. Grain: slug. Twice is once.
MERGE INTO coins_state AS c
USING (
    SELECT * FROM seen_coins QUALIFY row_number() OVER (PARTITION BY slug ORDER BY position DESC) = 1
) AS w
ON c.slug = w.slug
WHEN MATCHED AND $content_at >= c.content_at THEN UPDATE SET
    symbol = w.symbol, name = w.name, rank = w.rank, tracked = w.tracked, icon_url = w.icon_url,
    upcoming_count = w.upcoming_count, major_count = w.major_count, peak_impact = w.peak_impact,
    extra = coalesce(w.extra, c.extra), last_seen_at = $observed_at, missing_since = NULL,
    content_at = $content_at
WHEN NOT MATCHED THEN INSERT (
    slug, symbol, name, rank, tracked, icon_url, upcoming_count, major_count, peak_impact, extra,
    first_seen_at, last_seen_at, missing_since, content_at
) VALUES (
    w.slug, w.symbol, w.name, w.rank, w.tracked, w.icon_url, w.upcoming_count, w.major_count,
    w.peak_impact, w.extra, $observed_at, $observed_at, NULL, $content_at
);
