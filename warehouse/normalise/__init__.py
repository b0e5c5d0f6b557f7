"""One landed batch to typed rows in staging tables, with rejects and counts."""
