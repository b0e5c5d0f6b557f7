"""A process that exists for one query: its memory is bounded, and it ends if the query is stuck.

DuckDB's own limits leave gaps: some functions take memory that it does not count, and some do not
check for an interrupt. A process can be bounded as a whole, so the commands are. Belongs here: the
bounds of this process. Does not: the limits of a connection, and when a query is stuck
(query_limits). Sizes are in bytes.
"""

import os
import sys
from typing import Final, NoReturn

from almanac.reading.query_limits import QueryLimits
from almanac.reading.temporary import remove_own_folders

PROGRAM_BYTES: Final = 1_000_000_000
"""Memory of the program beside twice that of the query, since Python holds the rows again."""
STACK_BYTES: Final = 64_000_000
"""Of each thread; most of it is never used."""


def bound_memory(limits: QueryLimits) -> None:
    """Limit the memory of this process, for as long as it lives.

    Linux alone enforces it.
    """
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    stacks = (limits.threads or os.cpu_count() or 1) * STACK_BYTES
    bound = 2 * limits.memory_bytes + PROGRAM_BYTES + stacks
    lower = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (lower, hard))


def end_process(message: str, code: int) -> NoReturn:
    """End this process from any thread, with a message on standard error."""
    remove_own_folders()
    sys.stderr.write(message)
    sys.stderr.flush()
    os._exit(code)
