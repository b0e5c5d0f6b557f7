"""Measures how much of the limits is used, with our server and with nginx."""
