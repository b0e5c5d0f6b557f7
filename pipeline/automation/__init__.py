"""Dagster's jobs, schedules and sensors.

    jobs.py          the jobs, the daily schedule, and the job that deletes old records
    sensors.py       sensors `polls`, `pulls` and `merges`: whether a run starts now
    health.py        sensor `health`, the checks that show warnings, runs whose process is gone

Which pulls are due is decided in pipeline/polls.py.
"""
