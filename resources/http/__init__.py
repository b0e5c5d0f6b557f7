"""The client: one request, one page, one list, one download."""
