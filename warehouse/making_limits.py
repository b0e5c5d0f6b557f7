"""DuckDB's limits while it makes the warehouse. This module does not import DuckDB."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class MakingLimits:
    """Memory and threads of DuckDB; rows that do not fit into memory are spilled to disk.

    `threads` None means one for each core.
    """

    memory_bytes: int = 1_300_000_000
    threads: int | None = None


USUAL_LIMITS: Final = MakingLimits()
"""Together with Python and Dagster they fit on a machine with 4 GB."""
