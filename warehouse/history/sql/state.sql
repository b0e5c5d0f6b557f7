-- The state of a fold, in a database in memory: the known events, coins and categories, the versions
-- and absences of the current day, and the macros that the steps share.
--
--     create_state → define_macros          once for each fold, before any observation

-- name: create_state
-- The state of a fold. Grain: one row per event, coin, category or cancellation.
-- `event_content` has the content that versions record, `event_seen` what every observation changes.
-- `is_saved`: the content is also in the newest content file. `event_current` is the content of all events.
-- In `event_seen`, `shown_at` is the content time of the last row of the event, and `accepted_at` when
-- that was observed; `content_at` is later if an absence proved a withdrawal since. Of a missing event,
-- `absent_at` is the newest content time of its absences; `absent_export_at` and
-- `absent_export_content_at` are those of the first export that counts for a withdrawal.
-- `row_md5` is the digest of the record of an export, an md5 in earlier checkpoints.
-- Run twice: empty.
CREATE OR REPLACE TABLE event_content (
    event_id VARCHAR,
    {each compared: @name @type},
    status VARCHAR, cancelled_at TIMESTAMPTZ,
    first_seen_at TIMESTAMPTZ, changed_at TIMESTAMPTZ, version INTEGER, is_saved BOOLEAN
);
CREATE OR REPLACE VIEW event_current AS FROM event_content;
CREATE OR REPLACE TABLE event_seen (
    event_id VARCHAR, known BIGINT,
    {each uncompared: @name @type},
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
    {each content: @name @type},
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

-- name: define_macros
-- Whether a bitmask has the bit of a field; and an instant from the service if it can be believed:
-- one more than a day after the observation is unknown, else a single wrong year would be newer
-- than all later content.
CREATE OR REPLACE MACRO has(fields, field_bit) AS fields & field_bit <> 0;
CREATE OR REPLACE MACRO believed(instant, observed_at) AS
    if(instant <= observed_at + INTERVAL 1 DAY, instant, NULL);
