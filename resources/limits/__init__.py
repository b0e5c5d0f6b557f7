"""Rate and quota: arithmetic, the ledger on disk, shared and in-memory limiters."""
