"""Dagster assets and checks, each a few lines that call a plain function."""
