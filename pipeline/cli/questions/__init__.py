"""Commands that only read a home, and send no request to the service."""
