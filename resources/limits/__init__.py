"""Rate and quota: arithmetic, the ledger on disk, the shared limiter and the one in memory."""
