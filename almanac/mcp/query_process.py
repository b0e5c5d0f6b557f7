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
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from almanac.errors import QueryRefused, WarehouseError
from almanac.reading.attached_file import connected, explain_query_errors
from almanac.reading.named_sql import (
    NamedStatements,
    check_text,
    distinct_names,
    identifiers_in,
    lists_names,
    reading_relation,
)
from almanac.reading.query_limits import (
    QueryHooks,
    QueryLimits,
    QueryWatch,
    bound_memory,
    end_process,
)
from almanac.reading.row_files import format_timestamps
from almanac.safe_text import json_text

log = logging.getLogger(__name__)
_START_S: Final = 10.0
_WAIT_S: Final = 10.0
_FETCHED: Final = 1_000
_SQL = NamedStatements("almanac.mcp")
_RUNS_TEXT: Final = frozenset(
    {
        *("query", "query_table", "json_execute_serialized_sql"),
        *("arrow_scan", "arrow_scan_dumb", "pandas_scan", "python_arrow_scan"),
        "python_map_function",
    }
)
"""Functions that run a text as SQL, in which a name can be composed, or read an address in memory,
which ends the process."""


@dataclass(frozen=True, slots=True)
class QueryRows:
    """The first rows of a statement, as JSON values, and the number of all.

    `columns` are names and DuckDB types; `snapshot` is the publication, `id` and `published_at`.
    """

    columns: list[dict[str, str]]
    rows: list[dict[str, Any]]
    count: int
    snapshot: dict[str, str]


class QueryProcesses:
    """Runs statements on one published file, `running_max` at a time."""

    running_max: Final = 2

    def __init__(self, file: Path, limits: QueryLimits) -> None:
        self._file = file.absolute()
        self._limits = limits
        self._free = threading.BoundedSemaphore(self.running_max)
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_closed = False

    def close(self) -> None:
        """Kill the processes that run; later calls are refused."""
        with self._lock:
            self._is_closed = True
            for process in self._running:
                process.kill()

    def run(self, sql: str, *, rows_max: int, bytes_max: int) -> QueryRows:
        refuse_composed(sql)
        order = {
            "file": str(self._file),
            "sql": sql,
            "rows_max": rows_max,
            "bytes_max": bytes_max,
            "limits": asdict(self._limits),
        }
        if not self._free.acquire(timeout=_WAIT_S):
            raise QueryRefused(
                f"{self.running_max} statements are running, and none ended within {_WAIT_S:g} s. "
                "This one was not run; try it again."
            )
        try:
            answer = json.loads(self._run_process(order))
        finally:
            self._free.release()
        if "error" in answer:
            raise QueryRefused(answer["error"])
        return QueryRows(**answer)

    def _run_process(self, order: dict[str, Any]) -> bytes:
        """Return the output of a process; it ends if this process ends."""
        seconds = self._limits.timeout_s + self._limits.grace_s + _START_S
        reader, writer = os.pipe()
        try:
            process = self._start(reader, {**order, "alive": reader})
            try:
                out, err = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired as error:
                raise QueryRefused(
                    f"the statement did not end within {seconds:g} s, and was killed. Nothing was "
                    "changed."
                ) from error
            finally:
                process.kill()
                process.wait()
                with self._lock:
                    self._running.discard(process)
        finally:
            os.close(reader)
            os.close(writer)
        if process.returncode == 0:
            return out
        why = err.decode("utf-8", "replace").strip()
        last = why.splitlines()[-1] if why else ""
        if not last.startswith(_STOPPED):
            log.warning("the process of a statement ended with %s: %s", process.returncode, why)
        raise QueryRefused(
            last
            if last.startswith(_STOPPED)
            else "the process of the statement ended before it answered: it probably needed more "
            "memory than it may use. Nothing was changed."
        )

    def _start(self, alive: int, order: dict[str, Any]) -> subprocess.Popen[bytes]:
        # No variable of the parent: it may hold a key.
        variables = {
            "TMPDIR": tempfile.gettempdir(),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        with self._lock, tempfile.TemporaryFile() as given:
            if self._is_closed:
                raise QueryRefused("the server is stopping. The statement was not run.")
            given.write(json.dumps(order).encode("utf-8", "surrogatepass"))
            given.seek(0)
            process = subprocess.Popen(
                [sys.executable, "-P", "-X", "utf8", "-m", __name__],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=variables,
                pass_fds=(alive,),
            )
            self._running.add(process)
        return process


def refuse_composed(sql: str) -> None:
    """Refuse a statement that runs a text as SQL, or reads an address in memory."""
    check_text(sql)
    for name in identifiers_in(sql) & _RUNS_TEXT:
        raise QueryRefused(
            f"{name} is not permitted here: it runs a text as SQL, or reads memory. The statement "
            "was not run."
        )


_STOPPED: Final = "the query was stopped: "


def main() -> None:
    """Read an order from standard input, and write the answer to standard output."""
    order = json.loads(sys.stdin.buffer.read())
    threading.Thread(target=_end_with_starter, args=(order["alive"],), daemon=True).start()
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


def _end_with_starter(alive: int) -> None:
    os.read(alive, 1)
    end_process("", 1)


def _answer(order: Mapping[str, Any], limits: QueryLimits) -> dict[str, Any]:
    sql = order["sql"]
    program = QueryHooks(on_stuck=lambda why: end_process(f"{_STOPPED}{why}\n", 1))
    with connected(Path(order["file"]), limits=limits) as connection:
        facts = dict(connection.execute(_SQL["read_publication"]).fetchall())
        snapshot = {"id": facts["publication"], "published_at": facts["published_at"]}
        with explain_query_errors(QueryWatch(connection, limits, program)):
            relation = reading_relation(connection, sql, {})
            types = [str(kind) for kind in relation.types]
            columns = [
                {"name": name, "type": kind}
                for name, kind in zip(relation.columns, types, strict=True)
            ]
            batches: Iterable[list[Any]]
            if lists_names(sql):
                batches = [relation.fetchall()]
            else:
                connection.register("answer", format_timestamps(relation))
                connection.execute(_SQL["read_answer"])
                batches = iter(lambda: connection.fetchmany(_FETCHED), [])
            names = distinct_names(relation.columns)
            found = (
                {name: _plain(value) for name, value in zip(names, row, strict=True)}
                for batch in batches
                for row in batch
            )
            rows, count = first_rows(found, order["rows_max"], order["bytes_max"])
    return {"columns": columns, "rows": rows, "count": count, "snapshot": snapshot}


def first_rows(
    rows: Iterable[Mapping[str, Any]], rows_max: int, bytes_max: int
) -> tuple[list[dict[str, Any]], int]:
    """Return the first rows as JSON values, within both limits, and the number of all."""
    found: list[dict[str, Any]] = []
    size = count = 0
    for row in rows:
        count += 1
        if len(found) < rows_max and size <= bytes_max:
            text = json_text(row)
            size += len(text.encode())
            if size <= bytes_max:
                found.append(json.loads(text))
    return found, count


def _plain(value: Any) -> Any:
    """Return a value that JSON has: no NaN, no infinity, and only texts as keys.

    A decimal that a float does not hold is a text.
    """
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
