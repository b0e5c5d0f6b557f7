-- The rows of the run. Grain: as each table is named. Made once for a run, in an empty file.
CREATE TABLE events (
    id TEXT PRIMARY KEY,
    slug TEXT,
    title TEXT,
    description TEXT,
    displayed_date TEXT,
    date TEXT,
    date_end TEXT,
    date_type TEXT,
    is_estimated INTEGER,
    impact REAL,
    impact_summary TEXT,
    source_url TEXT,
    snapshot_url TEXT,
    last_verified_at TEXT,
    created_at TEXT,
    updated_at TEXT
);
CREATE INDEX events_by_date ON events (date, id);
CREATE INDEX long_events_by_date ON events (date, id, date_end) WHERE date_end IS NOT NULL;
CREATE TABLE event_coins (
    slug TEXT, date TEXT, id TEXT, date_end TEXT, PRIMARY KEY (slug, date, id)
) WITHOUT ROWID;
CREATE TABLE event_categories (
    category TEXT, date TEXT, id TEXT, date_end TEXT, PRIMARY KEY (category, date, id)
) WITHOUT ROWID;
CREATE INDEX coins_of_event ON event_coins (id, slug);
CREATE INDEX categories_of_event ON event_categories (id, category);
CREATE TABLE categories (category TEXT PRIMARY KEY, name TEXT) WITHOUT ROWID;
CREATE TABLE coins (
    place INTEGER PRIMARY KEY, -- the order of the coins list
    search_text TEXT,
    slug TEXT,
    symbol TEXT,
    name TEXT,
    rank INTEGER,
    tracked INTEGER,
    icon_url TEXT,
    upcoming_count INTEGER,
    major_count INTEGER,
    peak_impact REAL
);
CREATE UNIQUE INDEX coins_by_slug ON coins (slug, symbol, name);
-- An event as the interface shows it. Grain: one row an event.
CREATE VIEW shown_events AS
SELECT
    *,
    (
        SELECT json_group_array(
            json_object(
                'slug', event_coins.slug,
                'symbol', coalesce(symbol, ''),
                'name', coalesce(name, event_coins.slug)
            )
        )
        FROM event_coins LEFT JOIN coins ON coins.slug = event_coins.slug
        WHERE event_coins.id = events.id
    ) AS coins,
    (
        SELECT json_group_array(name)
        FROM event_categories JOIN categories USING (category)
        WHERE event_categories.id = events.id
    ) AS categories
FROM events;
