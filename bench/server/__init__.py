"""Compares the server with its peers, in one run on one machine."""
