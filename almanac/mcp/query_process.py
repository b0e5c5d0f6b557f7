"""Runs one statement of an assistant in a process of its own, which can be ended.

Some functions of DuckDB ignore an interrupt, and DuckDB does not count the memory of all. A process
has a bound of its memory, and is killed if it does not end.
"""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from almanac.errors import QueryRefused, WarehouseError
from almanac.forms import json_text
from almanac.reading.attached_file import connected, run_sql
from almanac.reading.query_limits import QueryHooks, QueryLimits, bound_memory, end_process

_START_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class QueryRows:
    """The first rows of a statement, as JSON values, and the number of all."""

    rows: list[dict[str, Any]]
    count: int


def run_query(file: Path, sql: str, *, rows_max: int, limits: QueryLimits) -> QueryRows:
    """Run one reading statement on a published file, and return its first rows.

    Raises:
        QueryRefused: it would write, fails, takes too long or needs too much memory.
    """
    order = {"file": str(file), "sql": sql, "rows_max": rows_max, "limits": asdict(limits)}
    seconds = limits.timeout_s + limits.grace_s + _START_S
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", __name__],
            input=json.dumps(order).encode("utf-8", "surrogatepass"),
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise QueryRefused(
            f"the statement did not end within {seconds:g} s, and was killed. Nothing was changed."
        ) from error
    if ended.returncode != 0:
        why = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        raise QueryRefused(
            (why[-1] if why else "the process of the statement ended, as without memory")[:1_000]
        )
    answer = json.loads(ended.stdout)
    if "error" in answer:
        raise QueryRefused(answer["error"])
    return QueryRows(answer["rows"], answer["count"])


def main() -> None:
    """Read an order from standard input, and write the answer to standard output."""
    order = json.loads(sys.stdin.buffer.read())
    limits = QueryLimits(**order["limits"])
    bound_memory(limits)
    program = QueryHooks(on_stuck=lambda why: end_process(f"it was stopped: {why}\n", 1))
    try:
        with connected(Path(order["file"]), limits=limits) as connection:
            found = run_sql(
                connection,
                order["sql"],
                rows_max=order["rows_max"],
                limits=limits,
                program=program,
            )
    except WarehouseError as error:
        answer: dict[str, Any] = {"error": str(error)}
    else:
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
        answer = {"rows": rows, "count": found.count}
    sys.stdout.write(json_text(answer))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
