"""`python -m bench.warehouse.growth`: how the steps of a home grow with its events and its years.

Processor time and peak memory of each step in a process of its own, with its start: first with
10,000 events, ten times as many, and so on up to `--events`, then with one, five and twenty years
of days up to `--years`, at 5,000 events. A step that grows by more than its input is marked. The
homes with years have no landing before the last day, so they are neither replayed nor verified.
"""

import json
import os
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import duckdb
from rich.console import Console
from rich.table import Table

from bench.children import (
    Measured,
    environment_without_settings,
    measure,
    measure_command,
    run_apart,
)
from bench.report import parse_arguments
from bench.warehouse.exports import write_export
from bench.warehouse.homes import LAST_DAY
from bench.warehouse.year_five import check_versions, deliver, make_home
from warehouse.home import Home

_SMALLEST: Final = 10_000
_YEARS: Final = (1, 5, 20)
_DAYS: Final = 365
_EVENTS: Final = 5_000
_COINS: Final = 200
_VERSIONS_A_YEAR: Final = 10_000
_COUNT: Final = "SELECT count(*), max(title) FROM"
Steps = dict[str, Measured]


def measure_events(folder: Path, events: int, rounds: int) -> Steps:
    """Measure each step of a home that gets the exports of two days."""
    exports = [folder / f"{day}.csv" for day in range(2)]
    for day, export in enumerate(exports):
        run_apart(write_export, export, events=events, day=day)
    home = Home(folder / "home")
    work = "bench.warehouse.ours"
    steps = {
        "load": measure(work, "load", str(home.root), str(exports[0])),
        "daily step": measure(work, "daily", str(home.root), *map(str, exports)),
    }
    steps["one delivery"] = _measure_deliveries(home, rounds)
    steps |= _measure_questions(home, rounds)
    steps["verify"] = measure(work, "verify", str(home.root))
    if wrong := steps["verify"].figures["wrong"]:
        raise ValueError(f"{home.root} does not pass verify: {wrong}")
    steps["replay"] = measure(work, "replay", str(home.root))
    return steps


def measure_years(folder: Path, years: int, rounds: int) -> Steps:
    """Measure each step of a home with so many years of days."""
    home = Home(folder / "home")
    versions = _VERSIONS_A_YEAR * years
    run_apart(make_home, home, events=_EVENTS, coins=_COINS, versions=versions, days=_DAYS * years)
    deliver(home, 0)
    steps = {"first publication": measure("bench.warehouse.ours", "merge", str(home.root))}
    steps["one delivery"] = _measure_deliveries(home, rounds)
    check_versions(home, versions + 1 + rounds)
    return steps | _measure_questions(home, rounds)


def _measure_deliveries(home: Home, rounds: int) -> Measured:
    runs = []
    for number in range(1, rounds + 1):
        deliver(home, number)
        runs.append(measure("bench.warehouse.ours", "merge", str(home.root)))
    return _middle(runs)


def _measure_questions(home: Home, rounds: int) -> Steps:
    """Measure commands that read."""
    day = LAST_DAY.isoformat()
    commands = {
        "status": ["status"],
        "sql": ["sql", f"{_COUNT} events"],
        "as of": ["sql", f"{_COUNT} events_as_of('{day} 12:00')"],
        "changes": ["changes"],
    }
    given = {**environment_without_settings(), "ALMANAC_HOME": str(home.root)}
    return {
        name: _middle(
            [
                measure_command(
                    [sys.executable, "-m", "pipeline", *words], read=lambda _: {}, given=given
                )
                for _ in range(rounds)
            ]
        )
        for name, words in commands.items()
    }


def _middle(runs: list[Measured]) -> Measured:
    """Return the run with the middle processor time."""
    middle = median(run.cpu_s for run in runs[: len(runs) - 1 + len(runs) % 2])
    return min(runs, key=lambda run: abs(run.cpu_s - middle))


def show_growth(console: Console, unit: str, sizes: dict[int, Steps]) -> list[str]:
    """Print the steps of each size; return those that grew by more than their input."""
    table = Table(unit, *(f"{size:,}: cpu s, MB" for size in sizes), "growth by step of input")
    faster: list[str] = []
    for step in next(iter(sizes.values())):
        runs = {size: steps[step] for size, steps in sizes.items()}
        factors = []
        for (size, run), (larger, next_run) in zip(
            runs.items(), list(runs.items())[1:], strict=False
        ):
            factor, of_input = next_run.cpu_s / run.cpu_s, larger / size
            factors.append(f"{factor:.1f} for {of_input:.0f}")
            if factor > of_input:
                faster.append(f"{step}, {size:,} to {larger:,} {unit}: {factor:.1f} times")
        cells = [f"{run.cpu_s:.2f}, {run.peak_mb:,.0f}" for run in runs.values()]
        table.add_row(step, *cells, "; ".join(factors))
    console.print(table)
    return faster


def main() -> None:
    size = parse_arguments(__doc__, events=100_000, years=20, rounds=3)
    console = Console(highlight=False)
    tables: dict[str, dict[int, Steps]] = {"events": {}, "years": {}}
    events = _SMALLEST
    while events <= size.events:
        with TemporaryDirectory(prefix="almanac-growth-", dir=size.folder) as folder:
            tables["events"][events] = measure_events(Path(folder), events, size.rounds)
        events *= 10
    for years in (years for years in _YEARS if years <= size.years):
        with TemporaryDirectory(prefix="almanac-growth-", dir=size.folder) as folder:
            tables["years"][years] = measure_years(Path(folder), years, size.rounds)
    faster = [
        line
        for unit, sizes in tables.items()
        if sizes
        for line in show_growth(console, unit, sizes)
    ]
    console.print(f"DuckDB {duckdb.__version__}, load average {os.getloadavg()[0]:.2f} at the end")
    console.print(f"no step grows faster than its input: {'; '.join(faster) or 'yes'}")
    if size.json is not None:
        figures: dict[str, Any] = {
            unit: {
                str(number): {
                    step: {"cpu": run.cpu_s, "peak_mb": run.peak_mb} for step, run in steps.items()
                }
                for number, steps in sizes.items()
            }
            for unit, sizes in tables.items()
        }
        size.json.write_text(json.dumps({"figures": figures}, indent=1))


if __name__ == "__main__":
    main()
