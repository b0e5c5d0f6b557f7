"""`python -m bench.start`: how long commands take, beside Python alone or another checkout.

`almanac run --days 7` on a new home, as `make run` does after set-up, then commands on that home,
several times in turns. Times are of the wall clock, from the start of the process to its end. `cpu`
is the processor time of the process, which other work on the machine affects least. With
`--old CHECKOUT` each command also runs in that checkout's `.venv`, which `make setup` makes.
"""

import argparse
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.children import environment_without_settings

PYTHON: Final = "python -c pass"
RUN: Final = "almanac run --days 7"
COMMANDS: Final = (
    PYTHON,
    "python -c 'import typer, rich'",
    "python -c 'import almanac'",
    "almanac --help",
    "almanac status",
    "almanac sql 'SELECT 1'",
    "almanac changes",
    "almanac run --help",
    "almanac sandbox --help",
)
Times = dict[str, list[tuple[float, float]]]
"""Seconds by clock and processor of each start, by command."""


def time_command(command: str, programs: Path, home: Path) -> tuple[float, float]:
    """Return the seconds of a command by the clock and of the processor."""
    program, *words = shlex.split(command)
    given = {"ALMANAC_HOME": str(home), "ALMANAC_STATE": str(home.with_name("state"))}
    given |= environment_without_settings()
    given.pop("PYTHONPATH", None)  # It would hide the code of the other checkout.
    began, used = perf_counter(), _seconds_of_children()
    start = [str(programs / program), *words]
    subprocess.run(start, env=given, check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - began, _seconds_of_children() - used


def _seconds_of_children() -> float:
    """Return the processor time of all processes that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_commands(environments: list[Path], runs: int, starts: int, under: Path) -> list[Times]:
    """Return the times of each command in each environment: a folder of programs."""
    measured: list[Times] = [defaultdict(list) for _ in environments]
    homes = [under / f"environment{number}" / "data" for number in range(len(environments))]
    for _ in range(runs):
        for programs, home, times in zip(environments, homes, measured, strict=True):
            shutil.rmtree(home.parent, ignore_errors=True)
            times[RUN].append(time_command(RUN, programs, home))
    for _ in range(starts):
        for command in COMMANDS:
            for programs, home, times in zip(environments, homes, measured, strict=True):
                times[command].append(time_command(command, programs, home))
    return measured


def show_times(measured: list[Times]) -> dict[str, dict[str, float]]:
    """Print a row per command, and return its figures."""
    ours, *others = measured
    old = others[0] if others else {}
    table = Table("", "seconds", "least", "cpu", "x Python alone", "old", "new / old")
    python = _middle(ours[PYTHON])
    figures = {}
    for command, times in ours.items():
        seconds = _middle(times)
        figures[command] = {
            "seconds": seconds,
            "least": min(wall for wall, _ in times),
            "cpu": median(cpu for _, cpu in times),
            "x Python alone": seconds / python,
        }
        if command in old:
            before = _middle(old[command])
            figures[command] |= {"old": before, "new / old": seconds / before}
        table.add_row(command, *(f"{value:.2f}" for value in figures[command].values()))
    console = Console(highlight=False, width=110)
    console.print(table)
    console.print(f"Load average at the end: {os.getloadavg()[0]:.2f}")
    return figures


def _middle(times: list[tuple[float, float]]) -> float:
    return median(wall for wall, _ in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of `almanac run` on a new home")
    parser.add_argument("--starts", type=int, default=10, help="of each other command")
    parser.add_argument("--old", type=Path, help="another checkout, such as an earlier commit")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    environments = [Path(sys.executable).parent]
    if given.old is not None:
        environments.append(given.old.resolve() / ".venv" / "bin")
    with TemporaryDirectory(prefix="almanac-start-") as folder:
        measured = measure_commands(environments, given.runs, given.starts, Path(folder))
    figures = show_times(measured)
    if given.json is not None:
        given.json.write_text(json.dumps({"figures": figures}, indent=1))


if __name__ == "__main__":
    main()
