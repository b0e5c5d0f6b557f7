"""Rate and quota of a key: the ledger on disk, and the limiter of a machine."""
