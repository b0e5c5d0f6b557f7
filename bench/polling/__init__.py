"""How young changes are seen under a quota, beside other policies."""
