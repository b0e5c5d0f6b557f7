"""The event catalog: its interface, a server that conforms to it, and a sandbox that changes.

It does not import the warehouse, Dagster or the command line.
"""


class ServerError(Exception):
    """A folder, an address, an account, a key or an endpoint can't be used; nothing was changed.

    The message states the problem and the remedy.
    """
