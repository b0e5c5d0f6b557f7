"""A project downstream of Almanac."""
