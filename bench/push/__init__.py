"""The receiver of webhooks, measured from outside: acknowledgements, bursts, time to the row."""
