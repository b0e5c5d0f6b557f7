"""The limits of DuckDB while it builds the warehouse, and the memory and cores of the machine or
container.

Linux limits a container by the cgroups (version 2) of its processes. DuckDB is imported when
it is opened.
"""

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class DuckDBLimits:
    """Memory and threads of DuckDB; rows that do not fit into memory are spilled to disk.

    If `threads` is None, there is one thread per core.
    """

    memory_bytes: int = 1_300_000_000
    threads: int | None = None


USUAL_LIMITS: Final = DuckDBLimits()
"""Together with Python and Dagster they fit on a machine with 4 GB."""
_SMALL_BYTES: Final = 16_000_000


def open_spilling(
    spill: Path, limits: DuckDBLimits = USUAL_LIMITS, *, warehouse: Path | None = None
) -> "duckdb.DuckDBPyConnection":
    """Open as `open_memory`, with limits and a folder for spilled data.

    `warehouse` is the file whose rows the statements read or write; if it is small, the
    connection is set for few rows.
    """
    from almanac.core.connections import open_memory

    connection = open_memory()
    is_file = warehouse is not None and warehouse.is_file()
    if warehouse is not None and is_file and warehouse.stat().st_size <= _SMALL_BYTES:
        # Each join clears the same tables for filters of its other side, however few the rows
        # are: half of the memory that a merge of two rows touches.
        connection.execute("SET disabled_optimizers = 'join_filter_pushdown'")
    connection.execute("SET memory_limit = $limit", {"limit": f"{limits.memory_bytes}B"})
    if limits.threads is not None:
        connection.execute("SET threads = $threads", {"threads": limits.threads})
    connection.execute("SET temp_directory = $folder", {"folder": str(spill)})
    return connection


def memory_bytes(root: Path = Path("/")) -> int:
    """Return the memory that this process may use."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *(int(words[0]) for words in _limits(root, "memory.max"))])


def cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process may use, at least one."""
    # Not of every system, and fewer than the machine has if it was started with `taskset`.
    affinity = getattr(os, "sched_getaffinity", None)
    machine = (os.cpu_count() or 1) if affinity is None else len(affinity(0))
    quotas = (int(quota) / int(period) for quota, period in _limits(root, "cpu.max"))
    return max(1, math.ceil(min([machine, *quotas])))


def _limits(root: Path, name: str) -> Iterator[list[str]]:
    """Yield the limits of the cgroup of this process and of those above it."""
    top = root / "sys/fs/cgroup"
    with suppress(OSError):
        own = top / (root / "proc/self/cgroup").read_text().partition("0::/")[2].strip()
        for folder in (own, *own.parents):
            # In a container the path may be that of the host, which is not there.
            with suppress(OSError):
                words = (folder / name).read_text().split()
                if all(word.isdecimal() for word in words):
                    yield words
            if folder == top:
                return
