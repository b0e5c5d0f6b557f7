-- name: typed
-- The export in the current folder, typed. Grain: event.
SELECT
    id AS event_id, slug, title, description, "displayedDate" AS displayed_date,
    "date"::TIMESTAMPTZ AS date, "dateEnd"::TIMESTAMPTZ AS date_end, "dateType" AS date_type,
    "isEstimated"::BOOLEAN AS is_estimated, categories, coins, impact::DOUBLE AS impact,
    "impactSummary" AS impact_summary, "sourceUrl" AS source_url, "snapshotUrl" AS snapshot_url,
    "lastVerifiedAt"::TIMESTAMPTZ AS last_verified_at, "createdAt"::TIMESTAMPTZ AS created_at,
    "updatedAt"::TIMESTAMPTZ AS updated_at
FROM read_csv('incoming.csv', all_varchar = true, header = true)
