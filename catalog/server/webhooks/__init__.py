"""Push: endpoints, the change feed, the outbox, delivery, and the guard of addresses."""
