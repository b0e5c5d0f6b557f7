-- No row before the first round.
SELECT instant FROM watermark
