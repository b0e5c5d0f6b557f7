-- New events enter the state. Grain: event. Once per look.
INSERT INTO sight
SELECT
    event_id, known, last_verified_at, updated_at, extra, content_at, observed_at, NULL, NULL,
    if(is_cancelled_before, NULL, content_md5),
    if(is_cancelled_before, NULL, row_md5)
FROM firsts;
