"""Compares how old changes are when polls see them, under a quota, with other policies."""
