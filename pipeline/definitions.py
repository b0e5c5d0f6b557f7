"""The definitions that Dagster loads. The import reads and opens nothing."""

import dagster as dg

from pipeline.build import build_definitions
from pipeline.secrecy import restrict_new_files
from pipeline.settings import read_settings


@dg.definitions
def almanac() -> dg.Definitions:
    # This is the process of the code location, which starts the processes of its runs.
    restrict_new_files()
    return build_definitions(read_settings())
