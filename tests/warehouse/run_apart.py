"""Run each statement in its own process, and print its result as a line of JSON.

`python -m tests.warehouse.run_apart WAREHOUSE` reads statements as JSON strings, one in each line.
Each process has the limits of `almanac sql`. It is forked from a process without threads that has
finished its imports.
"""

import json
import os
import resource
import sys
from pathlib import Path

from almanac.core.errors import QueryRefused
from almanac.core.files import remove_own_folders
from almanac.reading.attached_file import connected, run_sql
from almanac.reading.query_limits import QueryHooks, QueryLimits
from tests.memory import peak_bytes

LIMITS = QueryLimits(memory_bytes=100_000_000, threads=1, timeout_s=0.1, grace_s=0.2)
DATA_BYTES_MAX = 1_500_000_000
"""As in `almanac sql`: some functions take memory that DuckDB does not count."""


def run(warehouse: Path, sql: str) -> str:
    """Return the result of a statement; if it is stuck, exit the process."""

    def end(_: str | None) -> None:
        remove_own_folders()
        say("stuck")
        os._exit(0)

    with connected(warehouse, limits=LIMITS) as connection:
        try:
            run_sql(connection, sql, rows_max=10, limits=LIMITS, program=QueryHooks(on_stuck=end))
        except QueryRefused:
            return "refused"
    return "answered"


def say(ended: str) -> None:
    peak = peak_bytes()
    os.write(1, (json.dumps({"ended": ended, "bytes": peak}) + "\n").encode())


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES_MAX, DATA_BYTES_MAX))
            say(run(Path(sys.argv[1]), json.loads(line)))
            remove_own_folders()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            os.write(1, (json.dumps({"ended": f"with {status}", "bytes": 0}) + "\n").encode())


if __name__ == "__main__":
    main()
