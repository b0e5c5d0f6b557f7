-- Sets the instant after which $endpoint_id is sent to, to $since. Twice: no change.
INSERT INTO subscriptions (endpoint_id, since) VALUES ($endpoint_id, $since)
ON CONFLICT (endpoint_id) DO UPDATE SET since = excluded.since
