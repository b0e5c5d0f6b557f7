"""A range of event dates: price, state, segments side by side."""
