"""Connections of the programs that make lake and warehouse.

Belongs here: limiting the memory of a connection, sharing one for footers. Does not: opening and
closing in general (almanac.reading.connections).
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import duckdb

from almanac.reading.connections import open_memory


@dataclass(frozen=True, slots=True)
class MakingLimits:
    """What DuckDB may use while it makes lake or warehouse; the rest is spilled to disk.

    `threads` None means one for each core.
    """

    memory_bytes: int = 1_600_000_000
    threads: int | None = None


USUAL_LIMITS: Final = MakingLimits()
"""Together with Python and Dagster they fit on a machine with 4 GB."""
_SMALL_BYTES: Final = 16_000_000


@cache
def _kept_open() -> duckdb.DuckDBPyConnection:
    connection = open_memory()
    # Without the cache a file is read as it is now, even if only one byte changed.
    connection.execute("SET enable_external_file_cache = false")
    return connection


def open_for_footers() -> duckdb.DuckDBPyConnection:
    """Open another connection to the one database of this process that only reads footers.

    Making a database takes 12 ms, reading the metadata of a Parquet file less than one.
    """
    return _kept_open().cursor()


def open_spilling(
    spill: Path, limits: MakingLimits = USUAL_LIMITS, *, warehouse: Path | None = None
) -> duckdb.DuckDBPyConnection:
    """Open as `open_memory`, with limits and a folder for spilled data.

    `warehouse` is the file whose rows the statements read or write; if it is small, the
    connection is set for few rows.
    """
    connection = open_memory()
    if warehouse is not None and _is_small(warehouse):
        # Each join clears the same tables for filters of its other side, however few the rows
        # are: half of the memory that a merge of two rows touches.
        connection.execute("SET disabled_optimizers = 'join_filter_pushdown'")
    connection.execute("SET memory_limit = $limit", {"limit": f"{limits.memory_bytes}B"})
    if limits.threads is not None:
        connection.execute("SET threads = $threads", {"threads": limits.threads})
    connection.execute("SET temp_directory = $folder", {"folder": str(spill)})
    return connection


def _is_small(warehouse: Path) -> bool:
    try:
        return warehouse.stat().st_size <= _SMALL_BYTES
    except OSError:
        return False
