"""The table `event_steps`, and as-of joins of any engine with it."""
