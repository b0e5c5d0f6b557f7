"""What is kept of the records of runs, and for how long: `almanac prune` and the job of that name.

Dagster keeps every run, event, tick and log. What is deleted here is old, ended and the home's own;
the latest materialisation of each partition and the latest result of each check stay.
"""
