"""The event catalog: its interface, a server that conforms to it, and a sandbox that changes.

It imports nothing of the warehouse, of Dagster or of the command line.
"""
