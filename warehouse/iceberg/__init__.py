"""Iceberg tables: each publication as snapshots that other engines read."""
