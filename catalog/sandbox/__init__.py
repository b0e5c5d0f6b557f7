"""A synthetic catalog that keeps changing, with a clock and faults to switch."""
