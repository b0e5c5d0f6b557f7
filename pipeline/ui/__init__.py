"""Dagster's programs on a home: code server, daemon and web server, ended with their starter."""
