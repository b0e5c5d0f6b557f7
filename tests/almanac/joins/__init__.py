"""Joins with the caller's rows."""
