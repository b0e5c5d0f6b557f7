"""Groups of settings, each a class of fields that `Settings` inherits, and their types.

Rooms: types, then service, machine, deployment, retention. Only pipeline/settings.py reads their
values.
"""
