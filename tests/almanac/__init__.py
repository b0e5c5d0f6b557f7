"""The package of analysts, over published files."""
