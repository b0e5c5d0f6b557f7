"""A range of event dates: price, state, segments in parallel."""
