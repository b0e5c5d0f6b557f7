-- New events enter the state. Grain: event. Once per look.
INSERT INTO sight
SELECT
    event_id, known, last_verified_at, updated_at, extra, content_at, observed_at, NULL, NULL,
    if(content_at > row_content_at, NULL, content_md5)
FROM firsts;
