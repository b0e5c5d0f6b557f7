"""Storage that several machines share: the PostgreSQL database, the writer lease, the bucket."""
