"""`python -m bench.warehouse.as_of`: events as known at past times, beside the current rows.

`events_as_of(ts)` at a recent, a middle and an early time, and the same query of `events`: all
rows, one event, and a hundred events by id. All columns that both have are read into Arrow, on one
warm read-only connection of plain DuckDB, as an analyst's program has it. The answers are compared
with a plain query: the greatest version known by then, by a window over all versions.
"""

import json
import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import duckdb
from rich.console import Console
from rich.table import Table

from bench.children import ChildFailed, run_apart
from bench.report import parse_arguments
from bench.warehouse.homes import make_home
from warehouse.history.merge import merge
from warehouse.home import Home

BAR: Final = 2.0
_TIMES: Final = {"recent": 1.0, "middle": 0.5, "early": 0.02}
"""Share of the history that was known by then."""
_CONDITIONS: Final = {
    "all": "",
    "one event": "WHERE event_id = $wanted[1]",
    "100 events": "WHERE event_id IN (SELECT unnest($wanted))",
}
_PLAIN: Final = """
SELECT count(*), sum(hash(event_id, version, title, date, status))
FROM (
    SELECT *, row_number() OVER (PARTITION BY event_id ORDER BY version DESC) AS place
    FROM event_versions
    WHERE known_from <= $at::TIMESTAMPTZ
)
WHERE place = 1
"""
_OURS: Final = """
SELECT count(*), sum(hash(event_id, version, title, date, status))
FROM events_as_of($at::TIMESTAMPTZ)
"""


def publish_home(home: Home, size: Any) -> None:
    """Land and publish a home of that size."""
    sizes = {name: getattr(size, name) for name in ("events", "versions", "coins", "days")}
    run_apart(make_home, home, **sizes)
    run_apart(merge, home)


def measure_query(run: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Return the milliseconds of a query that has run once: the least and the middle by the clock,
    and the least of the processor."""
    rows = run().num_rows
    taken, used = [], []
    for _ in range(repeats):
        began, processor = time.perf_counter(), time.process_time()
        run()
        taken.append(1000 * (time.perf_counter() - began))
        used.append(1000 * (time.process_time() - processor))
    return {"ms": min(taken), "middle ms": median(taken), "cpu ms": min(used), "rows": rows}


def measure_questions(
    connection: duckdb.DuckDBPyConnection, repeats: int
) -> dict[str, dict[str, float]]:
    """Measure each question for the current rows and at each time."""
    times = find_times(connection)
    both = set(_columns(connection, "events")) & set(_columns(connection, "events_as_of(now())"))
    columns = ", ".join(sorted(both))
    wanted = connection.execute(
        "SELECT list(event_id) FROM (SELECT event_id FROM events ORDER BY hash(event_id) LIMIT 100)"
    ).fetchall()[0][0]
    measured: dict[str, dict[str, float]] = {}
    for question, condition in _CONDITIONS.items():
        values = {"wanted": wanted} if condition else {}
        sources = {"current": "events"} | dict.fromkeys(times, "events_as_of($at::TIMESTAMPTZ)")
        for name, source in sources.items():
            bound = values | ({"at": times[name]} if name in times else {})
            sql = f"SELECT {columns} FROM {source} {condition}"

            def run(sql: str = sql, bound: dict[str, Any] = bound) -> Any:
                return connection.sql(sql, params=bound).to_arrow_table()

            figures = measure_query(run, repeats)
            current = measured.get(f"{question}, current", figures)
            figures["times current"] = figures["cpu ms"] / current["cpu ms"]
            measured[f"{question}, {name}"] = figures
    return measured


def find_times(connection: duckdb.DuckDBPyConnection) -> dict[str, datetime]:
    ((first, last),) = connection.execute(
        "SELECT min(known_from), max(known_from) FROM event_versions"
    ).fetchall()
    return {name: first + (last - first) * share for name, share in _TIMES.items()}


def check_answers(connection: duckdb.DuckDBPyConnection) -> None:
    """Compare the answers with those of the plain query.

    Raises:
        ChildFailed: an answer differs.
    """
    for name, at in find_times(connection).items():
        plain, ours = (connection.execute(sql, {"at": at}).fetchall() for sql in (_PLAIN, _OURS))
        if plain != ours:
            raise ChildFailed(f"{name}: events_as_of gives {ours}, the plain query {plain}")


def _columns(connection: duckdb.DuckDBPyConnection, source: str) -> list[str]:
    return connection.sql(f"FROM {source}").columns


def main() -> None:
    size = parse_arguments(
        __doc__,
        **{"events": 50_000, "versions": 1_000_000, "coins": 200, "days": 200, "repeats": 9},
    )
    with TemporaryDirectory(prefix="almanac-as-of-", dir=size.folder) as temporary:
        home = Home(Path(temporary) / "home")
        publish_home(home, size)
        with duckdb.connect(str(home.warehouse), read_only=True) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            check_answers(connection)
            measured = measure_questions(connection, size.repeats)
    console = Console(highlight=False)
    title = f"as of: {size.events:,} events, {size.versions:,} versions, warm connection"
    console.print(f"{title}   DuckDB {duckdb.__version__}, load average {os.getloadavg()[0]:.2f}")
    table = Table("", *next(iter(measured.values())))
    for name, figures in measured.items():
        table.add_row(name, *(f"{value:,.2f}" for value in figures.values()))
    console.print(table)
    greatest = max(figures["times current"] for figures in measured.values())
    bars = {
        f"at most {BAR} x the current rows, processor": f"{greatest:.2f}",
        "the answers are those of the plain query": "yes",
    }
    for what, text in bars.items():
        console.print(f"{what}: {text}")
    if size.json is not None:
        size.json.write_text(json.dumps({"figures": measured, "bars": bars}, indent=1))


if __name__ == "__main__":
    main()
