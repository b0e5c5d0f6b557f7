"""A server with a synthetic catalog, a settable clock and faults.

`world/` decides which events exist. history.py writes them to the tables that the server reads, and
sandbox.py starts all parts together.
"""
