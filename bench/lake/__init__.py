"""Benchmarks of the Iceberg tables."""
