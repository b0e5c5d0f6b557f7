"""What is fresh, missing, deferred or running out; and its alerts."""
