"""Push on the command line: `almanac receive`, and `almanac inbox` on what was received."""
