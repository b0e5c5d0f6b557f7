-- name: create_state
CREATE OR REPLACE TABLE event_content (
    event_id VARCHAR,
    slug VARCHAR, title VARCHAR, description VARCHAR, displayed_date VARCHAR, date TIMESTAMPTZ,
    date_end TIMESTAMPTZ, date_type VARCHAR, is_estimated BOOLEAN, categories VARCHAR[],
    coins VARCHAR[], impact DOUBLE, impact_band VARCHAR, impact_summary VARCHAR,
    source_url VARCHAR, snapshot_url VARCHAR, created_at TIMESTAMPTZ,
    status VARCHAR, cancelled_at TIMESTAMPTZ,
    first_seen_at TIMESTAMPTZ, changed_at TIMESTAMPTZ, version INTEGER, is_saved BOOLEAN
);
CREATE OR REPLACE VIEW event_current AS FROM event_content;
CREATE OR REPLACE TABLE event_seen (
    event_id VARCHAR, known BIGINT,
    last_verified_at TIMESTAMPTZ, updated_at TIMESTAMPTZ,
    extra VARCHAR,
    content_at TIMESTAMPTZ, shown_at TIMESTAMPTZ, accepted_at TIMESTAMPTZ, last_seen_at TIMESTAMPTZ,
    missing_since TIMESTAMPTZ, absent_at TIMESTAMPTZ, absent_export_at TIMESTAMPTZ,
    absent_export_content_at TIMESTAMPTZ, content_md5 VARCHAR, row_md5 VARCHAR
);
CREATE OR REPLACE TABLE cancellations_waiting (
    event_id VARCHAR, cancelled_at TIMESTAMPTZ, content_at TIMESTAMPTZ,
    first_seen_at TIMESTAMPTZ, last_seen_at TIMESTAMPTZ, batch_id VARCHAR
);
CREATE OR REPLACE TABLE coin_labels (
    slug VARCHAR, symbol VARCHAR, name VARCHAR, content_at TIMESTAMPTZ
);
CREATE OR REPLACE TABLE coins_state (
    slug VARCHAR, symbol VARCHAR, name VARCHAR, rank INTEGER, tracked BOOLEAN, icon_url VARCHAR,
    upcoming_count INTEGER, major_count INTEGER, peak_impact DOUBLE, extra VARCHAR,
    first_seen_at TIMESTAMPTZ, last_seen_at TIMESTAMPTZ, missing_since TIMESTAMPTZ,
    content_at TIMESTAMPTZ
);
CREATE OR REPLACE TABLE categories_state (
    id VARCHAR, name VARCHAR, extra VARCHAR, first_seen_at TIMESTAMPTZ, last_seen_at TIMESTAMPTZ
);
CREATE OR REPLACE TABLE snapshot (
    slug VARCHAR, rank INTEGER, tracked BOOLEAN, upcoming_count INTEGER, major_count INTEGER,
    peak_impact DOUBLE, observed_at TIMESTAMPTZ, batch_id VARCHAR
);
CREATE OR REPLACE TABLE day_versions (
    event_id VARCHAR, version INTEGER, known_from TIMESTAMPTZ, known_basis VARCHAR,
    change_kinds VARCHAR[], changed_fields VARCHAR[], batch_id VARCHAR, feed VARCHAR,
    plan VARCHAR, content_at TIMESTAMPTZ,
    slug VARCHAR, title VARCHAR, description VARCHAR, displayed_date VARCHAR, date TIMESTAMPTZ,
    date_end TIMESTAMPTZ, date_type VARCHAR, is_estimated BOOLEAN, categories VARCHAR[],
    coins VARCHAR[], impact DOUBLE, impact_band VARCHAR, impact_summary VARCHAR,
    source_url VARCHAR, snapshot_url VARCHAR, last_verified_at TIMESTAMPTZ, created_at TIMESTAMPTZ,
    updated_at TIMESTAMPTZ, status VARCHAR, cancelled_at TIMESTAMPTZ,
    known BIGINT, extra VARCHAR
);
CREATE OR REPLACE TABLE day_absences (
    event_id VARCHAR, changed_at TIMESTAMPTZ, missing_since TIMESTAMPTZ, batch_id VARCHAR,
    place INTEGER
);
CREATE OR REPLACE TABLE watched_spans (
    coins VARCHAR[], categories VARCHAR[], lower TIMESTAMPTZ, upper TIMESTAMPTZ,
    since TIMESTAMPTZ
);
