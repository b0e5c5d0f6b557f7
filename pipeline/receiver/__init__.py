"""The receiver of webhooks: verified, stored in the inbox, acknowledged; `almanac receive`."""
