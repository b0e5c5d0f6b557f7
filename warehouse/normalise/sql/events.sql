-- Rows of an event feed: typed, or with the reason why they are unreadable.
--
--     create_events → view_seen → (JSON: json_events | CSV: csv.sql) within insert_events
--     → count_events

-- name: create_events
-- Grain: one row per row of an event feed, readable (reason is NULL) or not.
-- `place` is its position if our code counts the rows; else it is NULL, and the rowid is used.
-- Run twice: empty again.
CREATE OR REPLACE TEMP TABLE normalised (
    place BIGINT,
    event_id VARCHAR,
    observed_at TIMESTAMPTZ,
    content_at TIMESTAMPTZ,
    {each fields: @name @type},
    shown BIGINT,
    extra VARCHAR,
    coin_names STRUCT(slug VARCHAR, symbol VARCHAR, name VARCHAR)[],
    status VARCHAR,
    cancelled_at TIMESTAMPTZ,
    content_hash UBIGINT,
    row_hash UBIGINT,
    reason VARCHAR,
    raw VARCHAR
)

-- name: view_seen
-- Grain: one row per readable row of an event feed. `position` is its place in the batch.
-- A view, since counting a million rows during the read would limit the reader to one thread.
-- Run twice: the same view.
CREATE OR REPLACE TEMP VIEW seen AS
SELECT coalesce(place, rowid) AS position, * EXCLUDE (place, reason, raw)
FROM normalised
WHERE reason IS NULL

-- name: json_events
-- Grain: one row per element of $rows, a JSON array as rows.py makes it. Reads only.
-- In two steps, elements first: parsing the structure of the whole array is three times slower.
SELECT parsed.*, NULL::UBIGINT AS row_hash
FROM (
    SELECT from_json(element, '{
        "place": "BIGINT",
        "event_id": "VARCHAR",
        "observed_text": "VARCHAR",
        "content_text": "VARCHAR",
        {each fields: "@name": @json},
        "shown": "BIGINT",
        "extra": "VARCHAR",
        "coin_names": [{"slug": "VARCHAR", "symbol": "VARCHAR", "name": "VARCHAR"}],
        "status": "VARCHAR",
        "cancelled_text": "VARCHAR"
    }') AS parsed
    FROM (SELECT unnest(from_json($rows, '["JSON"]')) AS element)
)

-- name: insert_events
-- Grain: one row per row of an event feed, into `normalised`: typed, or with the reason why it
-- can't be read. `arrived_rows` is replaced by the SELECT that gives the rows (csv_reader.py,
-- json_events): texts in canonical form, NULL if hidden or absent, `shown` with a bit
-- for each field that the plan shows and the row has. `impact` may be a number or a band.
-- `row_hash` is the digest of the texts of a CSV record, as read by DuckDB; else NULL.
-- Placeholders: arrived_rows.
-- Parameters: $observed_at, $content_at of the batch; the bits $title_bit, $date_bit,
-- $categories_bit, $coins_bit, $impact_bit, $impact_band_bit; the bounds $impact_min, $impact_max.
-- Run twice: every row is there twice.
INSERT INTO normalised BY NAME
WITH arrived AS ({arrived_rows}),
typed AS (
    SELECT
        * EXCLUDE ({each instants: @name}, {each booleans: @name}),
        {each instants: @name AS @name_text},
        {each booleans: @name AS @name_text},
        almanac_instant(content_text) AS content_of_row,
        almanac_instant(cancelled_text) AS cancelled_at,
        {each instants: almanac_instant(@name) AS @name},
        {each booleans: CASE
            WHEN lower(@name) IN ('true', '1', 'yes') THEN true
            WHEN lower(@name) IN ('false', '0', 'no') THEN false
        END AS @name},
        CASE
            WHEN impact IS NOT NULL AND NOT contains(impact, '_')
                AND try_cast(impact AS DOUBLE) BETWEEN $impact_min AND $impact_max
                THEN try_cast(impact AS DOUBLE) + 0.0
        END AS score,
        almanac_band_named(coalesce(impact, impact_band)) AS band
    FROM arrived
),
checked AS (
    SELECT
        * EXCLUDE (impact, impact_band, shown),
        impact AS impact_text,
        impact_band AS impact_band_text,
        score AS impact,
        coalesce(almanac_band_of(score), band) AS impact_band,
        CASE
            WHEN shown & ($impact_bit | $impact_band_bit) = 0 THEN shown
            WHEN score IS NULL AND band IS NOT NULL
                THEN (shown | $impact_band_bit) & ~$impact_bit
            ELSE shown | $impact_bit | $impact_band_bit
        END AS shown,
        -- Why the row can't be read: a field, what was expected, and if it is one text, what was given.
        CASE
            WHEN event_id IS NULL THEN ['id', 'a text', NULL]
            WHEN strlen(event_id) > 200 THEN ['id', 'at most 200 bytes', event_id]
            -- A long number, as a spreadsheet saves it: its last digits are lost.
            WHEN event_id LIKE '%E+__' THEN ['id', 'all of its digits', event_id]
            WHEN status = 'cancelled' AND cancelled_at IS NULL
                THEN ['cancelledAt', 'an instant', cancelled_text]
            WHEN content_text IS NOT NULL AND content_of_row IS NULL
                THEN ['time of the delivery', 'an instant', content_text]
            WHEN title IS NULL AND shown & $title_bit <> 0 THEN ['title', 'a text', NULL]
            WHEN date IS NULL
                AND (date_text IS NOT NULL OR status = 'scheduled' OR shown & $date_bit <> 0)
                THEN ['date', 'an instant of 1900 to 2200', date_text]
            {each instants except date: WHEN @name IS NULL AND @name_text IS NOT NULL
                THEN ['@wire', 'an instant of 1900 to 2200', @name_text]}
            {each booleans: WHEN @name IS NULL AND @name_text IS NOT NULL
                THEN ['@wire', 'true or false', @name_text]}
            WHEN categories IS NULL AND shown & $categories_bit <> 0
                THEN ['categories', 'names in the JSON array']
            WHEN coins IS NULL AND shown & $coins_bit <> 0
                THEN ['coins', 'a slug in each coin of the JSON array']
            WHEN score IS NULL AND band IS NULL AND coalesce(impact, impact_band) IS NOT NULL
                THEN ['impact', 'a number of the scale or a band', coalesce(impact, impact_band)]
        END AS refusal
    FROM typed
)
SELECT
    place,
    event_id,
    coalesce(try_cast(observed_text AS TIMESTAMPTZ), $observed_at) AS observed_at,
    -- Content can't be newer than its observation, whatever the service says: a cancelledAt or
    -- createdAt in the future would make everything seen until then stale.
    least(
        coalesce(content_of_row, $content_at),
        coalesce(try_cast(observed_text AS TIMESTAMPTZ), $observed_at)
    ) AS content_at,
    {each fields: @name},
    shown,
    extra,
    coin_names,
    status,
    cancelled_at,
    -- The hash of an empty list is that of NULL.
    hash(
        shown, status, cancelled_at, len(categories), len(coins),
        {each compared: @name}
    ) AS content_hash,
    row_hash,
    refusal[1] || ': expected ' || refusal[2] || CASE
        WHEN len(refusal) = 2 THEN ''
        ELSE coalesce(', got ''' || left(refusal[3], 80) || '''', ', but it is missing')
    END AS reason,
    CASE
        WHEN refusal IS NOT NULL
            THEN to_json({
                'id': event_id,
                {each fields before impact: '@wire': @raw},
                'impact': impact_text,
                'impactBand': impact_band_text,
                {each fields after impact_band: '@wire': @raw},
                'cancelledAt': cancelled_text
            })::VARCHAR
    END AS raw
FROM checked

-- name: count_events
-- Grain: one row: rows read, those that can't be, ids among the good ones. Reads only.
SELECT
    count(*),
    count(reason),
    count(DISTINCT event_id) FILTER (reason IS NULL)
FROM normalised
