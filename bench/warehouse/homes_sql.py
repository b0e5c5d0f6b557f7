"""The statements that make the lakes of homes.py."""

VERSIONS = """
CREATE TABLE versions AS
WITH planned AS (
    SELECT
        k,
        n AS version,
        CASE WHEN hash(k) % 10 < 6 THEN 0 ELSE hash(k, 'first') % $days END::INTEGER AS first,
    FROM range($events) AS e(k), range(1, $each + 1) AS v(n)
),
dated AS (
    SELECT
        *,
        first + ((($days - 1 - first) * (version - 1)) // $each)::INTEGER AS day_number,
    FROM planned
),
seen AS (
    SELECT *, $start::TIMESTAMPTZ + to_days(day_number) + to_seconds(version) AS known_from
    FROM dated
)
SELECT
    day_number,
    'evt_' || left(md5(k::VARCHAR), 16) AS event_id,
    version::INTEGER AS version,
    known_from,
    'observed' AS known_basis,
    CASE WHEN version = 1 THEN ['created'] ELSE ['rescheduled'] END AS change_kinds,
    CASE WHEN version = 1 THEN []::VARCHAR[] ELSE ['date', 'displayed_date'] END AS changed_fields,
    NULL::VARCHAR AS batch_id,
    'export' AS feed,
    'elite' AS plan,
    known_from AS content_at,
    'event-' || k AS slug,
    'Mainnet upgrade number ' || k || ' of a network' AS title,
    repeat('Some words on what is going to happen and why. ', (1 + hash(k) % 6)::INTEGER)
        || k AS description,
    strftime(known_from + to_days((hash(k, version) % 300)::INTEGER), '%d %b %Y')
        AS displayed_date,
    date_trunc('day', known_from) + to_days((hash(k, version) % 300)::INTEGER) AS date,
    NULL::TIMESTAMPTZ AS date_end,
    CASE WHEN hash(k) % 5 = 0 THEN 'quarter' ELSE 'date' END AS date_type,
    hash(k) % 5 = 0 AS is_estimated,
    ['Category ' || (hash(k, 'c') % 20)] AS categories,
    list_distinct(['coin-' || (hash(k, 1) % $coins), 'coin-' || (hash(k, 2) % 100)]) AS coins,
    (hash(k, 'i') % 100) / 10.0 AS impact,
    'Mid' AS impact_band,
    'It may matter to holders, for reason ' || hash(k) % 1000 AS impact_summary,
    'https://example.org/announcements/' || md5(k::VARCHAR) AS source_url,
    'https://example.org/snapshots/' || md5(k::VARCHAR) || '.png' AS snapshot_url,
    known_from AS last_verified_at,
    $start::TIMESTAMPTZ + to_days(first) - to_days(1) AS created_at,
    known_from AS updated_at,
    CASE
        WHEN version = $each AND hash(k) % 30 = 0 THEN 'cancelled' ELSE 'scheduled'
    END AS status,
    CASE WHEN version = $each AND hash(k) % 30 = 0 THEN known_from END AS cancelled_at,
    $known::BIGINT AS known,
    NULL::VARCHAR AS extra
FROM seen
ORDER BY day_number, known_from, event_id
"""
CHANGES = """
COPY (
    SELECT * EXCLUDE (day_number) REPLACE ($batch_id AS batch_id)
    FROM versions
    WHERE day_number = $day_number
) TO $file (FORMAT parquet, COMPRESSION zstd, KV_METADATA {almanac: $meta})
"""
COUNT = "SELECT count(*) FROM versions WHERE day_number = $day_number"
SNAPSHOT = """
COPY (
    SELECT
        'coin-' || k AS slug,
        (1 + k + hash(k, $day_number) % 7)::INTEGER AS rank,
        k % 4 < 3 AS tracked,
        (hash(k, $day_number // 20) % 12)::INTEGER AS upcoming_count,
        (hash(k, $day_number // 20, 1) % 3)::INTEGER AS major_count,
        (hash(k, $day_number // 20, 2) % 100) / 10.0 AS peak_impact,
        $observed_at::TIMESTAMPTZ AS observed_at,
        $batch_id AS batch_id
    FROM range($coins) AS c(k)
) TO $file (FORMAT parquet, COMPRESSION zstd)
"""
STATE = {
    "events": """
COPY (
    SELECT * EXCLUDE (
        day_number, known_from, known_basis, change_kinds, changed_fields, batch_id, feed, plan
    ),
        min(known_from) OVER (PARTITION BY event_id) AS first_seen_at,
        $at::TIMESTAMPTZ AS last_seen_at,
        NULL::TIMESTAMPTZ AS missing_since,
        known_from AS changed_at,
        content_at AS shown_at,
        known_from AS accepted_at,
        NULL::TIMESTAMPTZ AS absent_at,
        NULL::TIMESTAMPTZ AS absent_export_at,
        NULL::TIMESTAMPTZ AS absent_export_content_at,
        md5(event_id) AS content_md5, NULL::VARCHAR AS row_md5
    FROM versions
    QUALIFY row_number() OVER (PARTITION BY event_id ORDER BY version DESC) = 1
    ORDER BY event_id
) TO $file (FORMAT parquet, COMPRESSION zstd)
""",
    "coins": """
COPY (
    SELECT
        'coin-' || k AS slug, 'C' || k AS symbol, 'Coin ' || k AS name,
        (1 + k)::INTEGER AS rank, k % 4 < 3 AS tracked,
        'https://example.org/icons/' || k || '.png' AS icon_url,
        0::INTEGER AS upcoming_count, 0::INTEGER AS major_count, NULL::DOUBLE AS peak_impact,
        $at::TIMESTAMPTZ AS first_seen_at, $at::TIMESTAMPTZ AS last_seen_at,
        NULL::TIMESTAMPTZ AS missing_since, $at::TIMESTAMPTZ AS content_at
    FROM range($coins) AS c(k)
) TO $file (FORMAT parquet, COMPRESSION zstd)
""",
    "categories": """
COPY (
    SELECT
        'category-' || k AS id, 'Category ' || k AS name,
        $at::TIMESTAMPTZ AS first_seen_at, $at::TIMESTAMPTZ AS last_seen_at
    FROM range(20) AS c(k)
) TO $file (FORMAT parquet, COMPRESSION zstd)
""",
    "cancellations": """
COPY (
    SELECT
        event_id, cancelled_at, cancelled_at AS first_seen_at, cancelled_at AS last_seen_at,
        'none' AS batch_id
    FROM versions
    WHERE cancelled_at IS NOT NULL
) TO $file (FORMAT parquet, COMPRESSION zstd)
""",
    "labels": """
COPY (
    SELECT 'coin-' || k AS slug, 'C' || k AS symbol, 'Coin ' || k AS name FROM range(100) AS c(k)
) TO $file (FORMAT parquet, COMPRESSION zstd)
""",
}
DELIVERED = """
INSERT INTO versions
SELECT * REPLACE (
    $day_number AS day_number, $at::TIMESTAMPTZ AS known_from, version + 1 AS version,
    title || ', again' AS title, $at::TIMESTAMPTZ AS content_at, $at::TIMESTAMPTZ AS updated_at,
    ['revised'] AS change_kinds, ['title'] AS changed_fields
)
FROM versions
QUALIFY row_number() OVER (ORDER BY known_from DESC, event_id, version DESC) = 1
"""
