"""The inbox of webhook deliveries, from the disk of the receiver to a landed batch."""
