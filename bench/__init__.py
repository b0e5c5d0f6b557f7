"""Benchmarks: each command runs Almanac and its alternatives side by side, and prints ratios."""
