"""A merge measured by step and by SQL statement. Run as a child: it prints the totals.

Times are of the processor, of all threads, in seconds. Each `duckdb.connect` of this process
returns a connection that measures its statements, with the fetching of their rows. A statement is
named as in its `.sql` file, or by its first words. Time outside statements (Python, hashes, syncs)
has the name "not SQL". Statements that run beside each other count the same time twice.
"""

import argparse
import re
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import duckdb

from bench.children import print_figures
from bench.warehouse.ours import land
from warehouse import history, landing, normalise, publish
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.schema.columns import GROUPS
from warehouse.sql import Statements

_LEADING: Final = re.compile(r"\A(?:\s*--[^\n]*\n)*\s*")
_COMMENT: Final = re.compile(r"--[^\n]*")
_FETCHES: Final = frozenset(
    {"fetchall", "fetchone", "fetchmany", "fetchnumpy", "arrow", "to_arrow_table", "df"}
)
_WORDS: Final = 7


class StatementTimes:
    """The processor time of statements in each step of a merge."""

    def __init__(self) -> None:
        self.steps: defaultdict[str, float] = defaultdict(float)
        self.statements: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0])
        """Seconds and calls by step and statement."""
        self._running: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0])
        self._began = time.process_time()
        packages = (history, landing, normalise, publish)
        self._names = {
            _LEADING.sub("", text): name
            for package in packages
            for name, text in Statements(package.__name__, GROUPS).texts.items()
        }

    def measure(self, text: str, call: Callable[[], Any], *, calls: int = 1) -> Any:
        began = time.process_time()
        try:
            return call()
        finally:
            taken = self._running[self._name(text)]
            taken[0] += time.process_time() - began
            taken[1] += calls

    def end_step(self, step: str) -> None:
        """Attribute all time since the step before to this one."""
        now = time.process_time()
        self.steps[step] += now - self._began
        for name, (seconds, calls) in self._running.items():
            taken = self.statements[step, name]
            taken[0] += seconds
            taken[1] += calls
        self._began = now
        self._running.clear()

    def _name(self, text: str) -> str:
        bare = _LEADING.sub("", text)
        return self._names.get(bare) or " ".join(_COMMENT.sub("", bare).split()[:_WORDS])


class TimedConnection:
    """A connection of DuckDB that measures its statements."""

    def __init__(self, inner: duckdb.DuckDBPyConnection, times: StatementTimes) -> None:
        self._inner = inner
        self._times = times
        self._text = ""

    def execute(self, query: Any, *values: Any, **named: Any) -> Self:
        self._text = query if isinstance(query, str) else query.query
        self._times.measure(self._text, lambda: self._inner.execute(query, *values, **named))
        return self

    def cursor(self) -> "TimedConnection":
        return TimedConnection(self._inner.cursor(), self._times)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in _FETCHES:
            return found
        return lambda *values, **named: self._times.measure(
            self._text, lambda: found(*values, **named), calls=0
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inner.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("export", nargs="?", type=Path, help="landed before the measurement")
    parser.add_argument("--day", type=int, default=0, help="the day of the export")
    given = parser.parse_args()
    home = Home(given.home)
    if given.export is not None:
        land(home, given.export, given.day)
    connect, times = duckdb.connect, StatementTimes()

    def connect_timed(*values: Any, **named: Any) -> Any:
        return TimedConnection(connect(*values, **named), times)

    duckdb.connect = connect_timed
    clock, processor = time.perf_counter(), time.process_time()
    times.end_step("set-up")
    merge(home, step=times.end_step)
    times.end_step("merge:ended")
    seconds, cpu = time.perf_counter() - clock, time.process_time() - processor
    del times.steps["set-up"]
    statements: defaultdict[str, dict[str, list[float]]] = defaultdict(dict)
    for (step, name), taken in times.statements.items():
        statements[step][name] = taken
    print_figures(seconds=seconds, cpu=cpu, steps=times.steps, statements=statements)


if __name__ == "__main__":
    main()
