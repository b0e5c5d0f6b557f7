"""The event study: abnormal returns around events as they were known at entry."""
