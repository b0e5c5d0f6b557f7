"""The programs that a person or a scheduler starts: command line and Dagster definitions.

    runs/        Dagster's records of runs, and which have a process
    ui/          the programs of `almanac ui` and `almanac daemon`
    health/      freshness, gaps, deferred work, quota; alerts
    automation/  Dagster's jobs, schedule and sensors
    cli/         a module for each command, or for commands of one subject

Beside them: settings.py, the only module that reads the environment; session.py opens the service
that the settings name; polls.py decides which polls are due; build.py builds all definitions;
daily_run.py runs the daily job in this process.
"""
