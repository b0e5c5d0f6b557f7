-- Grain: one row per element of $rows, a JSON array as json_rows.py makes it. Reads only.
-- In two steps, elements first: to take the structure from the whole array is three times slower.
SELECT one.*, NULL::VARCHAR AS row_md5
FROM (
    SELECT from_json(element, '{
        "place": "BIGINT",
        "event_id": "VARCHAR",
        "observed_text": "VARCHAR",
        "content_text": "VARCHAR",
        "slug": "VARCHAR",
        "title": "VARCHAR",
        "description": "VARCHAR",
        "displayed_date": "VARCHAR",
        "date": "VARCHAR",
        "date_end": "VARCHAR",
        "date_type": "VARCHAR",
        "is_estimated": "VARCHAR",
        "categories": ["VARCHAR"],
        "coins": ["VARCHAR"],
        "impact": "VARCHAR",
        "impact_band": "VARCHAR",
        "impact_summary": "VARCHAR",
        "source_url": "VARCHAR",
        "snapshot_url": "VARCHAR",
        "last_verified_at": "VARCHAR",
        "created_at": "VARCHAR",
        "updated_at": "VARCHAR",
        "shown": "BIGINT",
        "extra": "VARCHAR",
        "coin_names": [{"slug": "VARCHAR", "symbol": "VARCHAR", "name": "VARCHAR"}],
        "status": "VARCHAR",
        "cancelled_text": "VARCHAR"
    }') AS one
    FROM (SELECT unnest(from_json($rows, '["JSON"]')) AS element)
)
