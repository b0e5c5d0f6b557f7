"""A year of a home that runs every day: the size of Dagster's records, the speed of its pages."""
