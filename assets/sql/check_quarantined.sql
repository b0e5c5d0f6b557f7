-- Grain: one row per batch in quarantine, newest first. Run twice: the same rows.
SELECT batch_id, why FROM batches WHERE status = 'quarantined' ORDER BY observed_at DESC
