"""Dagster's records of runs: their databases, which runs have a process, which are dead."""
