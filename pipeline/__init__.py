"""What a person or a scheduler starts: settings, the command line, Dagster's definitions.

    runs/        Dagster's records of runs, and which have a process
    ui/          the programs of `almanac ui`
    polling/     the planner of polls: which windows, how often, within what budget
    health/      what is fresh, missing, deferred or running out; alerts
    automation/  Dagster's jobs, schedule and sensors
    cli/         a module for each command, or for commands of one subject

Beside them: settings.py, the one module that reads the environment; session.py, opening the service
that the settings name; build.py, all definitions put together; daily_run.py, a day's job in this
process.
"""
