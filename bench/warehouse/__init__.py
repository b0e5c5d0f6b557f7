"""Merging and publishing beside bare DuckDB and dlt."""
