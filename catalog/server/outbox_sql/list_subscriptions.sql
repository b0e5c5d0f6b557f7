-- One row per endpoint that was ever seen.
SELECT endpoint_id, since FROM subscriptions
