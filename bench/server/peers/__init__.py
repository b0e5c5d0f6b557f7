"""What is raced: our server, bare ASGI, datasette; and the rows that all of them serve."""
