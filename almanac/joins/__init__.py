"""Joins with the caller's rows: what was known at the instant of each row."""
