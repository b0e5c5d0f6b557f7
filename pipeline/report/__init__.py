"""The report: what is coming, what changed, and the health of the data, as one file."""
