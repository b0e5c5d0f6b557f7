"""The definitions of Almanac with the sensor `polls` off: commands in one process do not poll."""

import dagster as dg

from pipeline.component import AlmanacComponent
from pipeline.secrecy import restrict_new_files

SENSORS = ("daily_schedule", "pulls", "merges", "health")


@dg.definitions
def almanac() -> dg.Definitions:
    restrict_new_files()
    return AlmanacComponent(automation=SENSORS).build_defs()
