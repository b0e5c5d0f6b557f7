"""Dagster assets, their checks and metadata."""
