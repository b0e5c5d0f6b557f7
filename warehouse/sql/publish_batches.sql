-- Grain: one row per batch, from what the files of the change log say of themselves.
-- Parameters: $changes, the files. Run twice: the same rows.
WITH told AS (
    SELECT from_json(decode(value), '{
        "day": "DATE",
        "batches": [{
            "batch_id": "VARCHAR", "feed": "VARCHAR", "status": "VARCHAR", "why": "VARCHAR",
            "flagged": "VARCHAR", "arrived": "BIGINT", "good": "BIGINT", "rejected": "BIGINT",
            "duplicates": "BIGINT", "ignored": "BIGINT", "stale": "BIGINT", "versions": "BIGINT",
            "observed_at": "TIMESTAMPTZ", "content_at": "TIMESTAMPTZ", "landed_at": "TIMESTAMPTZ",
            "plan": "VARCHAR", "complete": "BOOLEAN", "why_incomplete": "VARCHAR",
            "requests": "BIGINT", "rows_claimed": "BIGINT", "bytes": "BIGINT",
            "scope": {
                "lower": "TIMESTAMPTZ", "upper": "TIMESTAMPTZ", "since": "TIMESTAMPTZ",
                "coins": ["VARCHAR"], "categories": ["VARCHAR"], "event_id": "VARCHAR"
            }
        }]
    }') AS day
    FROM parquet_kv_metadata($changes)
    WHERE decode(key) = 'almanac'
)
SELECT * EXCLUDE (scope), unnest(scope)
FROM (
    SELECT observed_date, unnest(batch)
    FROM (SELECT day.day AS observed_date, unnest(day.batches) AS batch FROM told)
)
