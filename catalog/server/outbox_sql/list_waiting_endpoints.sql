-- One row per endpoint that has pending deliveries, due or not.
SELECT DISTINCT endpoint_id FROM deliveries WHERE state = 'pending'
