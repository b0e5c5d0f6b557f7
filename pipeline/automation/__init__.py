"""Dagster's jobs, schedule and sensors.

    jobs.py          the jobs, and the daily schedule
    pulls.py         sensors `polls`, `first_pull` and `quota`: whether a pull starts now
    merges.py        sensors `unmerged_batches` and `deliveries`: whether a merge starts now
    health.py        sensor `health`, and the checks that show warnings
    dead_runs.py     sensor of runs whose process is gone
    prune.py         the job that deletes old records

Which pulls are due is decided in pipeline/polls.py.
"""
