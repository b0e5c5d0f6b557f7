"""The digest of a period: which changes, in what order and form, and its posts."""
