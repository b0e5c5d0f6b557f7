"""What Dagster loads. Nothing is read or opened when this is imported."""

import dagster as dg

from pipeline.build import build_definitions
from pipeline.secrecy import begin_private
from pipeline.settings import read_settings


@dg.definitions
def almanac() -> dg.Definitions:
    # This process is the code location's own, and starts those of its runs.
    begin_private()
    return build_definitions(read_settings())
