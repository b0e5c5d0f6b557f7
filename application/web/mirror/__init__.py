"""The mirror: the service's interface over a published warehouse, now or as of a past time."""
