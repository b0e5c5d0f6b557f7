"""Accounts: keys, grants, monthly usage, and their JSON files."""
