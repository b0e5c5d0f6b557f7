"""`python -m bench.as_of`: events as known at past times, beside the current rows.

`events_as_of(ts)` at a recent, a middle and an early time, and the same query of `events`: all rows
and one event. All columns that both have are read into Arrow, on one warm read-only connection of
plain DuckDB. The answers are compared with a window over all versions.
"""

import json
import os
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import duckdb
from rich.console import Console
from rich.table import Table

from bench.children import ChildFailed, run_apart
from bench.homes import make_home
from bench.report import parse_arguments
from warehouse.home import Home

BAR: Final = 2.0
_TIMES: Final = {"recent": 1.0, "middle": 0.5, "early": 0.02}
"""Share of the time of the history that is over by then."""
_CONDITIONS: Final = {"all": "", "one event": "WHERE event_id = $event_id"}
_SUM: Final = "SELECT count(*), sum(hash(event_id, version, title, date, status)) FROM"
_PLAIN: Final = """(
    FROM event_versions WHERE known_from <= $at::TIMESTAMPTZ
    QUALIFY row_number() OVER (PARTITION BY event_id ORDER BY version DESC) = 1
)"""
_OURS: Final = "events_as_of($at::TIMESTAMPTZ)"


def measure_questions(
    connection: duckdb.DuckDBPyConnection, repeats: int
) -> dict[str, dict[str, float]]:
    """Measure each question for the current rows and at each time.

    Raises:
        ChildFailed: an answer differs from the window over all versions.
    """
    ((first, last, event_id),) = connection.execute(
        "SELECT min(known_from), max(known_from), min(event_id) FROM event_versions"
    ).fetchall()
    names = (
        connection.sql(f"FROM {source}").columns for source in ("events", "events_as_of(now())")
    )
    columns = ", ".join(sorted(set.intersection(*map(set, names))))
    measured: dict[str, dict[str, float]] = {}
    for question, condition in _CONDITIONS.items():
        bound = {"event_id": event_id} if condition else {}
        current = f"SELECT {columns} FROM events {condition}"
        base = measured[f"{question}, current"] = _measure(connection, current, bound, repeats)
        for name, share in _TIMES.items():
            at = {"at": first + (last - first) * share}
            plain, ours = (
                connection.execute(f"{_SUM} {source}", at).fetchall() for source in (_PLAIN, _OURS)
            )
            if plain != ours:
                raise ChildFailed(f"{name}: events_as_of gives {ours}, the plain query {plain}")
            text = f"SELECT {columns} FROM {_OURS} {condition}"
            found = _measure(connection, text, bound | at, repeats)
            found["times current"] = found["cpu ms"] / base["cpu ms"]
            measured[f"{question}, {name}"] = found
    return measured


def _measure(
    connection: duckdb.DuckDBPyConnection, text: str, bound: dict[str, Any], repeats: int
) -> dict[str, float]:
    """Return the least milliseconds, by clock and processor, of a query that ran before."""
    run = partial(connection.sql, text, params=bound)
    rows = run().to_arrow_table().num_rows
    taken = []
    for _ in range(repeats):
        began, processor = time.perf_counter(), time.process_time()
        run().to_arrow_table()
        taken.append((time.perf_counter() - began, time.process_time() - processor))
    clock, cpu = (1000 * min(each) for each in zip(*taken, strict=True))
    return {"rows": rows, "ms": clock, "cpu ms": cpu, "times current": 1.0}


def main() -> None:
    sizes = {"events": 50_000, "versions": 1_000_000, "coins": 200, "days": 200}
    given = parse_arguments(__doc__, **sizes, repeats=9)
    with TemporaryDirectory(prefix="almanac-as-of-", dir=given.folder) as temporary:
        home = Home(Path(temporary) / "home")
        run_apart(make_home, home.root, **{name: getattr(given, name) for name in sizes})
        with duckdb.connect(home.warehouse, read_only=True) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            measured = measure_questions(connection, given.repeats)
            ((versions,),) = connection.execute("SELECT count(*) FROM event_versions").fetchall()
    load = f"load average {os.getloadavg()[0]:.2f}"
    table = Table("", *next(iter(measured.values())), title=f"{versions:,} versions, {load}")
    for name, figures in measured.items():
        table.add_row(name, *(f"{value:,.2f}" for value in figures.values()))
    greatest = max(figures["times current"] for figures in measured.values())
    bars = {f"at most {BAR} x the current rows, processor": f"{greatest:.2f}"}
    console = Console(highlight=False)
    console.print(table, bars)
    if given.json is not None:
        given.json.write_text(json.dumps({"figures": measured, "bars": bars}, indent=1))


if __name__ == "__main__":
    main()
