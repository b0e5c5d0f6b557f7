"""A synthetic catalog that lives and changes over time, with a clock and faults to switch."""
