-- Whether a batch changed the state of a fold, beside the versions that it logged.

-- name: known_beside_versions
-- Which events are missing since when, which cancellations wait for their event, and the names of
-- coins. Grain: one row. No parameters. Run twice: the same while nothing is folded.
SELECT
    (SELECT (count(missing_since), bit_xor(hash(event_id, missing_since)))
     FROM event_seen WHERE missing_since IS NOT NULL),
    (SELECT (count(*), bit_xor(hash(event_id, cancelled_at))) FROM cancellations_waiting),
    (SELECT (count(*), bit_xor(hash(slug, symbol, name))) FROM coin_labels);
