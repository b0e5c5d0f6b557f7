"""The compared servers: ours, bare ASGI, Datasette; and the rows that all of them serve."""
