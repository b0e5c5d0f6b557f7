"""The event catalog: its interface, a server that conforms to it, and a sandbox that changes.

It does not import the warehouse, Dagster or the command line.
"""
