"""Data at rest: landing, lake, tables and queries, as a pure library.

Knows nothing of HTTP, Dagster or the command line.
"""
