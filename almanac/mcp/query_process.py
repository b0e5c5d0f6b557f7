"""Runs each statement of an assistant in a separate process, which can be killed.

Some functions of DuckDB ignore an interrupt, and DuckDB does not count the memory of all. A process
has a bound of its memory, no environment variable with a secret, and is killed if it does not end
or if its starter ends.
"""

import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from almanac.core.errors import QueryRefused, WarehouseError
from almanac.core.statements import Statements, distinct_names
from almanac.core.text import json_text
from almanac.reading.attached_file import connected, explain_query_errors
from almanac.reading.query_check import check_text, identifiers_in, lists_names, reading_relation
from almanac.reading.query_limits import (
    QueryHooks,
    QueryLimits,
    QueryWatch,
    bound_memory,
    end_process,
)
from almanac.reading.row_files import format_timestamps

log = logging.getLogger(__name__)
_START_S: Final = 10.0
_WAIT_S: Final = 10.0
_FETCHED: Final = 1_000
BYTES_MAX: Final = 60_000
"""The largest JSON size of the rows, since an assistant reads a whole answer into its context."""
_INTEGER_MAX: Final = 2**53
_SQL = Statements("almanac.mcp")
_REFUSED: Final = frozenset(
    {
        *("query", "query_table", "json_execute_serialized_sql"),
        *("arrow_scan", "arrow_scan_dumb", "pandas_scan", "python_arrow_scan"),
        *("python_map_function", "duckdb_databases", "pragma_database_list", "duckdb_settings"),
        *("current_setting", "pg_settings", "duckdb_extensions", "duckdb_temporary_files"),
    }
)
"""Functions that run a text as SQL, in which a name can be composed, read an address in memory,
which ends the process, or show folders of this machine."""
_STOPPED: Final = "the query was stopped: "


class QueryProcesses:
    """Runs statements on one published file, `running_max` at a time."""

    running_max: Final = 2

    def __init__(self, file: Path, limits: QueryLimits) -> None:
        self._file = file.absolute()
        self._limits = limits
        self._free = threading.BoundedSemaphore(self.running_max)
        self._running: set[subprocess.Popen[bytes]] = set()

    def close(self) -> None:
        """Kill the processes that run."""
        for process in tuple(self._running):
            process.kill()

    def run(self, sql: str, offset: int, limit: int) -> dict[str, Any]:
        """Return `rows` as `first_rows`, `count`, the number of all, `columns`, names and DuckDB
        types, and `snapshot`, the publication."""
        check_text(sql)
        for name in identifiers_in(sql) & _REFUSED:
            raise QueryRefused(
                f"{name} is not permitted here: it runs a text as SQL, reads memory, or shows this "
                "machine. The statement was not run."
            )
        limits = asdict(self._limits)
        cut = {"offset": offset, "limit": limit}
        order = json.dumps({"file": str(self._file), "sql": sql, "limits": limits, "cut": cut})
        if not self._free.acquire(timeout=_WAIT_S):
            raise QueryRefused(
                f"{self.running_max} statements are running, and none ended within {_WAIT_S:g} s. "
                "This one was not run; try it again."
            )
        try:
            answer: dict[str, Any] = json.loads(self._run_process(order.encode()))
        finally:
            self._free.release()
        if "error" in answer:
            raise QueryRefused(answer["error"])
        return answer

    def _run_process(self, order: bytes) -> bytes:
        """Return the output of a process. It ends with this one, which holds its input open."""
        seconds = self._limits.timeout_s + self._limits.grace_s + _START_S
        # No variable of the parent: it may hold a key.
        variables = {
            "TMPDIR": tempfile.gettempdir(),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        command = [sys.executable, "-P", "-X", "utf8", "-m", __name__]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=variables
        ) as process:
            self._running.add(process)
            # Held open here: `communicate` would close it.
            held, process.stdin = process.stdin, None
            assert held is not None
            try:
                with suppress(BrokenPipeError):
                    held.write(order + b"\n")
                    held.flush()
                out, err = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired as error:
                raise QueryRefused(
                    f"the statement did not end within {seconds:g} s, and was killed. Nothing was "
                    "changed."
                ) from error
            finally:
                process.kill()
                self._running.discard(process)
                with suppress(BrokenPipeError):
                    held.close()
        if process.returncode == 0:
            return out
        why = err.decode("utf-8", "replace").strip()
        last = why.rpartition("\n")[2]
        if last.startswith(_STOPPED):
            raise QueryRefused(last)
        log.warning("the process of a statement ended with %s: %s", process.returncode, why)
        raise QueryRefused(
            "the process of the statement ended before it answered: it probably needed more memory "
            "than it may use. Nothing was changed."
        )


def main() -> None:
    """Read an order from standard input, and write the answer to standard output."""
    order = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_starter, daemon=True).start()
    os.nice(10)  # The answers of other tools come first.
    limits = QueryLimits(**order["limits"])
    bound_memory(limits)
    try:
        answer = _answer(order, limits)
    except WarehouseError as error:
        answer = {"error": str(error)}
    except MemoryError:
        answer = {"error": f"{_STOPPED}it needs more memory than it may use"}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    # Without teardown, which can wait for work that nothing stops.
    end_process("", 0)


def _end_with_starter() -> None:
    sys.stdin.buffer.read()
    end_process("", 1)


def _answer(order: Mapping[str, Any], limits: QueryLimits) -> dict[str, Any]:
    sql = order["sql"]
    program = QueryHooks(on_stuck=lambda why: end_process(f"{_STOPPED}{why}\n", 1))
    with connected(Path(order["file"]), limits=limits) as connection:
        facts = dict(connection.execute(_SQL["read_publication"]).fetchall())
        published_at = facts["published_at"].replace("+00:00", "Z")
        snapshot = {"id": facts["publication"], "published_at": published_at}
        with explain_query_errors(QueryWatch(connection, limits, program)):
            relation = reading_relation(connection, sql, {})
            columns = [
                {"name": name, "type": str(kind)}
                for name, kind in zip(relation.columns, relation.types, strict=True)
            ]
            batches: Iterable[list[Any]]
            if lists_names(sql):
                batches = [relation.fetchall()]
            else:
                connection.register("answer", format_timestamps(relation))
                connection.execute(_SQL["read_answer"])
                batches = iter(lambda: connection.fetchmany(_FETCHED), [])
            names = distinct_names(relation.columns)
            found = (dict(zip(names, row, strict=True)) for batch in batches for row in batch)
            rows, count = first_rows(found, **order["cut"])
    return {"columns": columns, "rows": rows, "count": count, "snapshot": snapshot}


def first_rows(
    rows: Iterable[Mapping[str, Any]], offset: int, limit: int
) -> tuple[list[dict[str, Any]], int]:
    """Return at most `limit` rows as JSON values, of `BYTES_MAX`, and the number of all rows."""
    found: list[dict[str, Any]] = []
    size = count = 0
    for row in rows:
        count += 1
        if count > offset and len(found) < limit and size <= BYTES_MAX:
            text = json_text(_plain(row))
            size += len(text.encode())
            if size <= BYTES_MAX:
                found.append(json.loads(text))
    return found, count


def _plain(value: Any) -> Any:
    """Return a value that every JSON reader has: no NaN, no infinity, and only texts as keys.

    A decimal that a float does not hold is a text, and so is an integer above 2^53.
    """
    if isinstance(value, int):
        return value if abs(value) <= _INTEGER_MAX else str(value)
    if isinstance(value, Decimal):
        number = float(value)
        return number if Decimal(repr(number)) == value else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


if __name__ == "__main__":
    main()
