"""`python -m bench.warehouse.steps`: the processor time of a merge by step and SQL statement.

Three merges: the load of an export, the export of the next day, and one delivery into a home of
some years. `timed_merge.py` measures them.
"""

import json
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import duckdb
from rich.console import Console
from rich.table import Table

from bench.children import Measured, measure, run_apart
from bench.report import parse_arguments
from bench.warehouse.exports import write_export
from bench.warehouse.year_five import deliver, make_home
from warehouse.home import Home

_CHILD: Final = "bench.warehouse.timed_merge"
_NOT_SQL: Final = "not SQL"


def measure_merges(size: Any, folder: Path) -> dict[str, Measured]:
    """Measure each merge in a process of its own, on homes in a folder."""
    exports = [folder / f"{day}.csv" for day in range(2)]
    for day, export in enumerate(exports):
        run_apart(write_export, export, events=size.events, day=day)
    new, old = Home(folder / "new"), Home(folder / "old")
    measured = {"load": measure(_CHILD, str(new.root), str(exports[0]))}
    best = measured["daily step"] = _measure_daily(new, exports[1], size.rounds)
    shutil.rmtree(new.root)
    run_apart(
        make_home,
        old,
        events=size.old_events,
        versions=size.versions,
        coins=size.coins,
        days=size.days,
    )
    deliver(old, 0)
    measure(_CHILD, str(old.root))
    for number in range(1, size.rounds + 1):
        deliver(old, number)
        run = measure(_CHILD, str(old.root))
        best = measured.setdefault("one delivery", run)
        if run.figures["cpu"] < best.figures["cpu"]:
            measured["one delivery"] = run
    return measured


def _measure_daily(home: Home, export: Path, rounds: int) -> Measured:
    """Return the round with the least processor time."""
    runs = []
    for number in range(rounds):
        copy = home.root.with_name(f"copy{number}")
        shutil.copytree(home.root, copy)
        runs.append(measure(_CHILD, str(copy), str(export), "--day", "1"))
        shutil.rmtree(copy)
    return min(runs, key=lambda run: float(run.figures["cpu"]))


def show_steps(console: Console, name: str, figures: dict[str, Any], top: int) -> None:
    """Print the time of each step, with the statements that took most of it."""
    title = (
        f"{name}: {figures['cpu']:.2f} s of the processor, {figures['seconds']:.2f} s by the clock"
    )
    table = Table("step", "statement", "calls", "cpu s", title=title)
    for step, seconds in figures["steps"].items():
        statements = figures["statements"].get(step, {})
        table.add_row(
            step, "", f"{sum(calls for _, calls in statements.values()):,.0f}", _s(seconds)
        )
        rest = seconds - sum(taken for taken, _ in statements.values())
        lines = [*statements.items(), (_NOT_SQL, (rest, 0))]
        for statement, (taken, calls) in sorted(lines, key=lambda line: -line[1][0])[:top]:
            if taken >= 0.005:
                table.add_row("", statement, f"{calls:,.0f}" if calls else "", _s(taken))
    console.print(table)


def _s(seconds: float) -> str:
    return f"{seconds:.3f}"


def main() -> None:
    size = parse_arguments(
        __doc__,
        **{"events": 100_000, "old_events": 20_000, "versions": 280_000, "coins": 5_000},
        **{"days": 365, "rounds": 3, "top": 12},
    )
    with TemporaryDirectory(prefix="almanac-steps-", dir=size.folder) as temporary:
        measured = measure_merges(size, Path(temporary))
    console = Console(highlight=False)
    for name, run in measured.items():
        show_steps(console, name, run.figures, size.top)
    load = os.getloadavg()[0]
    console.print(f"DuckDB {duckdb.__version__}, load average {load:.2f} at the end")
    if size.json is not None:
        figures = {
            name: {
                **{key: run.figures[key] for key in ("seconds", "cpu", "steps")},
                "peak_mb": run.peak_mb,
            }
            for name, run in measured.items()
        }
        statements = {name: run.figures["statements"] for name, run in measured.items()}
        size.json.write_text(json.dumps({"figures": figures, "statements": statements}, indent=1))


if __name__ == "__main__":
    main()
