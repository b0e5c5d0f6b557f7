"""A Starlette server of the interface, over one store in SQL."""
