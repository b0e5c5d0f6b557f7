"""Dagster definitions of a home, and the settings, session and health that programs share with
them.

    automation/  Dagster's jobs, schedule and sensors
    health/      freshness, gaps, deferred work, quota; alerts

    settings.py         the only module that reads the environment
    home_location.py    the home that the settings name
    service_session.py  opens the service that the settings name
    polls.py            which pulls are due, and when the next is due
    build.py            builds all definitions; definitions.py is what Dagster loads
    instance.py         the Dagster instance in use
    secrecy.py          risks to the secrecy of key and data

The command line is in application/cli, the Dagster assets are in assets.
"""
