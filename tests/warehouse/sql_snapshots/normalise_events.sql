-- name: create_events
CREATE OR REPLACE TEMP TABLE normalised (
    place BIGINT,
    event_id VARCHAR,
    observed_at TIMESTAMPTZ,
    content_at TIMESTAMPTZ,
    slug VARCHAR, title VARCHAR, description VARCHAR, displayed_date VARCHAR, date TIMESTAMPTZ,
    date_end TIMESTAMPTZ, date_type VARCHAR, is_estimated BOOLEAN, categories VARCHAR[],
    coins VARCHAR[], impact DOUBLE, impact_band VARCHAR, impact_summary VARCHAR,
    source_url VARCHAR, snapshot_url VARCHAR, last_verified_at TIMESTAMPTZ, created_at TIMESTAMPTZ,
    updated_at TIMESTAMPTZ,
    shown BIGINT,
    extra VARCHAR,
    coin_names STRUCT(slug VARCHAR, symbol VARCHAR, name VARCHAR)[],
    status VARCHAR,
    cancelled_at TIMESTAMPTZ,
    content_md5 VARCHAR,
    row_md5 VARCHAR,
    reason VARCHAR,
    raw VARCHAR
)

-- name: json_events
SELECT parsed.*, NULL::VARCHAR AS row_md5
FROM (
    SELECT from_json(element, '{
        "place": "BIGINT",
        "event_id": "VARCHAR",
        "observed_text": "VARCHAR",
        "content_text": "VARCHAR",
        "slug": "VARCHAR", "title": "VARCHAR", "description": "VARCHAR",
        "displayed_date": "VARCHAR", "date": "VARCHAR", "date_end": "VARCHAR",
        "date_type": "VARCHAR", "is_estimated": "VARCHAR", "categories": ["VARCHAR"],
        "coins": ["VARCHAR"], "impact": "VARCHAR", "impact_band": "VARCHAR",
        "impact_summary": "VARCHAR", "source_url": "VARCHAR", "snapshot_url": "VARCHAR",
        "last_verified_at": "VARCHAR", "created_at": "VARCHAR", "updated_at": "VARCHAR",
        "shown": "BIGINT",
        "extra": "VARCHAR",
        "coin_names": [{"slug": "VARCHAR", "symbol": "VARCHAR", "name": "VARCHAR"}],
        "status": "VARCHAR",
        "cancelled_text": "VARCHAR"
    }') AS parsed
    FROM (SELECT unnest(from_json($rows, '["JSON"]')) AS element)
)

-- name: insert_events
INSERT INTO normalised BY NAME
WITH arrived AS ({arrived_rows}),
typed AS (
    SELECT
        * EXCLUDE (date, date_end, last_verified_at, created_at, updated_at, is_estimated),
        date AS date_text,
        date_end AS date_end_text,
        last_verified_at AS last_verified_at_text,
        created_at AS created_at_text,
        updated_at AS updated_at_text,
        is_estimated AS is_estimated_text,
        almanac_instant(content_text) AS content_of_row,
        almanac_instant(cancelled_text) AS cancelled_at,
        almanac_instant(date) AS date,
        almanac_instant(date_end) AS date_end,
        almanac_instant(last_verified_at) AS last_verified_at,
        almanac_instant(created_at) AS created_at,
        almanac_instant(updated_at) AS updated_at,
        CASE
            WHEN lower(is_estimated) IN ('true', '1', 'yes') THEN true
            WHEN lower(is_estimated) IN ('false', '0', 'no') THEN false
        END AS is_estimated,
        CASE
            WHEN impact IS NOT NULL AND NOT contains(impact, '_')
                AND try_cast(impact AS DOUBLE) BETWEEN $impact_min AND $impact_max
                THEN try_cast(impact AS DOUBLE) + 0.0
        END AS score,
        almanac_band_named(coalesce(impact, impact_band)) AS band,
        chr(0) AS nul
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
        CASE
            WHEN event_id IS NULL THEN 'id: expected a text, but it is missing'
            WHEN strlen(event_id) > 200 THEN almanac_expected('id', 'at most 200 bytes', event_id)
            WHEN status = 'cancelled' AND cancelled_at IS NULL
                THEN almanac_expected('cancelledAt', 'an instant', cancelled_text)
            WHEN content_text IS NOT NULL AND content_of_row IS NULL
                THEN almanac_expected('time of the delivery', 'an instant', content_text)
            WHEN title IS NULL AND shown & $title_bit <> 0
                THEN 'title: expected a text, but it is missing'
            WHEN date IS NULL
                AND (date_text IS NOT NULL OR status = 'scheduled' OR shown & $date_bit <> 0)
                THEN almanac_expected('date', 'an instant of 1900 to 2200', date_text)
            WHEN date_end IS NULL AND date_end_text IS NOT NULL
                THEN almanac_expected('dateEnd', 'an instant of 1900 to 2200', date_end_text)
            WHEN created_at IS NULL AND created_at_text IS NOT NULL
                THEN almanac_expected('createdAt', 'an instant of 1900 to 2200', created_at_text)
            WHEN updated_at IS NULL AND updated_at_text IS NOT NULL
                THEN almanac_expected('updatedAt', 'an instant of 1900 to 2200', updated_at_text)
            WHEN last_verified_at IS NULL AND last_verified_at_text IS NOT NULL
                THEN almanac_expected(
                    'lastVerifiedAt', 'an instant of 1900 to 2200', last_verified_at_text
                )
            WHEN is_estimated IS NULL AND is_estimated_text IS NOT NULL
                THEN almanac_expected('isEstimated', 'true or false', is_estimated_text)
            WHEN categories IS NULL AND shown & $categories_bit <> 0
                THEN 'categories: expected names in the JSON array'
            WHEN coins IS NULL AND shown & $coins_bit <> 0
                THEN 'coins: expected a slug in each coin of the JSON array'
            WHEN score IS NULL AND band IS NULL AND coalesce(impact, impact_band) IS NOT NULL
                THEN almanac_expected(
                    'impact', 'a number of the scale or a band', coalesce(impact, impact_band)
                )
        END AS reason
    FROM typed
)
SELECT
    place,
    event_id,
    coalesce(try_cast(observed_text AS TIMESTAMPTZ), $observed_at) AS observed_at,
    least(
        coalesce(content_of_row, $content_at),
        coalesce(try_cast(observed_text AS TIMESTAMPTZ), $observed_at)
    ) AS content_at,
    slug, title, description, displayed_date, date, date_end, date_type, is_estimated, categories,
    coins, impact, impact_band, impact_summary, source_url, snapshot_url, last_verified_at,
    created_at, updated_at,
    shown,
    extra,
    coin_names,
    status,
    cancelled_at,
    md5(concat(
        shown, nul, status, nul, epoch_us(cancelled_at),
        nul, slug,
        nul, title,
        nul, description,
        nul, displayed_date,
        nul, epoch_us(date),
        nul, epoch_us(date_end),
        nul, date_type,
        nul, is_estimated,
        nul, len(categories), nul, array_to_string(categories, chr(0)),
        nul, len(coins), nul, array_to_string(coins, chr(0)),
        nul, impact,
        nul, impact_band,
        nul, impact_summary,
        nul, source_url,
        nul, snapshot_url,
        nul, epoch_us(created_at)
    )) AS content_md5,
    row_md5,
    reason,
    CASE
        WHEN reason IS NOT NULL
            THEN to_json({
                'id': event_id,
                'slug': slug,
                'title': title,
                'description': description,
                'displayedDate': displayed_date,
                'date': date_text,
                'dateEnd': date_end_text,
                'dateType': date_type,
                'isEstimated': is_estimated_text,
                'categories': categories,
                'coins': coins,
                'impact': impact_text,
                'impactBand': impact_band_text,
                'impactSummary': impact_summary,
                'sourceUrl': source_url,
                'snapshotUrl': snapshot_url,
                'lastVerifiedAt': last_verified_at_text,
                'createdAt': created_at_text,
                'updatedAt': updated_at_text,
                'cancelledAt': cancelled_text
            })::VARCHAR
    END AS raw
FROM checked
