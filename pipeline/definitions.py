"""The definitions that Dagster loads. The import reads and opens nothing."""

import dagster as dg

from pipeline.component import AlmanacComponent
from pipeline.secrecy import restrict_new_files


@dg.definitions
def almanac() -> dg.Definitions:
    # This is the process of the code location, which starts the processes of its runs.
    restrict_new_files()
    return AlmanacComponent().build_defs()
