"""Dagster's programs on one machine: code server, daemon, web server; ended with their starter."""
