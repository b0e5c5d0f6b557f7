-- Grain: no row. Versions are compared without saying until when they hold; that comes after.
-- Parameters: none. Run twice: empty again.
CREATE OR REPLACE TEMP TABLE version_spans (
    event_id VARCHAR, version INTEGER, known_to TIMESTAMPTZ, first_seen_at TIMESTAMPTZ
)
