-- The batches that the published file was made of. Grain: one row per batch.
-- Needs: the published file attached as `published`. Reads alone; run twice it gives the same.
SELECT batch_id FROM published.main.batches WHERE status = 'merged';
