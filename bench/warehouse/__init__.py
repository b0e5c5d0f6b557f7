"""Compares merging and publishing with bare DuckDB and dlt."""
