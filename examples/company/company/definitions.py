"""The code location of the company: all that is in `defs`."""

from pathlib import Path

import dagster as dg


@dg.definitions
def company() -> dg.Definitions:
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
