"""Who may ask: keys, grants, monthly usage, and the JSON files they are kept in."""
