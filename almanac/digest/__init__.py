"""What became known in a period, as a digest that a person reads in the morning."""
