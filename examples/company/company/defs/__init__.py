"""Definitions of the company: each file here is loaded."""
