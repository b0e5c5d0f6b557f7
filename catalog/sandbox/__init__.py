"""A synthetic catalog that keeps changing, with a clock and faults to switch.

`world/` decides which events exist. history.py writes them to the tables that the server reads, and
sandbox.py starts all parts together.
"""
