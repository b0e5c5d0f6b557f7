"""The error that the server raises for the person who runs it."""


class ServerError(Exception):
    """A folder, an address, an account, a key or an endpoint can't be used; nothing was changed.

    The message states the problem and the remedy.
    """
