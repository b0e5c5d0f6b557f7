"""The pages of `almanac serve`, and a bare route of the same size."""
