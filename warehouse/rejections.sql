-- What of the deliveries is not in the history. Only reads.

-- name: list_rejected_deliveries
-- Each rejected delivery with its position in its batch, and each batch that is left out as a whole,
-- with a position of NULL. Grain: batch and position.
SELECT batch_id, position, reason
FROM rejects
WHERE batch_id IN (SELECT batch_id FROM batches WHERE feed = 'deliveries' AND status = 'merged')
UNION ALL
SELECT batch_id, NULL, why
FROM batches
WHERE feed = 'deliveries' AND status = 'quarantined'
