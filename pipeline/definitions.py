"""What Dagster loads. Nothing is read or opened when this is imported."""

import dagster as dg

from pipeline.build import build_definitions
from pipeline.settings import read_settings


@dg.definitions
def almanac() -> dg.Definitions:
    return build_definitions(read_settings())
