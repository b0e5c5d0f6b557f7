"""Webhooks: the endpoints, the outbox, and the sender."""
