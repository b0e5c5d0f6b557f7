"""Runs a benchmark in turns on the code of two checkouts, and prints their figures side by side.

    python -m bench.compare --old ../old [--rounds 3] -- bench.peers --only almanac --days 1,10

Both sides run the benchmark of this checkout, so that they are measured alike; `--own` runs the
benchmark of each checkout. For each number in its `--json` the table has the least and the middle
of the rounds, and the ratio of the least, new to old. Stop other work first: the load is printed.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from math import nan
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from rich.console import Console
from rich.table import Table

_HERE: Final = Path(__file__).parents[1]
_WIDTH: Final = 110
Rounds = dict[str, list[float]]
"""The numbers of a benchmark by their path in the JSON, one for each round."""


def link_checkout(checkout: Path, folder: Path, *, own: bool) -> Path:
    """Return a folder with the packages of a checkout, and this one's bench unless it is `own`."""
    folder.mkdir()
    for entry in checkout.iterdir():
        if entry.name not in (".git", ".venv", "bench"):
            (folder / entry.name).symlink_to(entry)
    (folder / "bench").symlink_to((checkout if own else _HERE) / "bench")
    return folder


def run_bench(folder: Path, words: list[str], into: Path) -> dict[str, Any]:
    """Return the JSON of one run in a folder.

    Raises:
        CalledProcessError: the benchmark failed.
    """
    into.unlink(missing_ok=True)
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", *words, "--json", str(into)]
    subprocess.run(command, cwd=folder, env=given, check=True, stdout=subprocess.DEVNULL)
    results: dict[str, Any] = json.loads(into.read_bytes())
    return results


def list_numbers(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, float]]:
    """Yield the path and value of each number in a JSON value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from list_numbers(inner, (*path, str(name)))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from list_numbers(inner, (*path, str(place)))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield " · ".join(path), float(value)


def _least(values: list[float]) -> float:
    return min(values)


def show_rounds(console: Console, title: str, old: Rounds, new: Rounds) -> None:
    table = Table("", "old, least", "middle", "new, least", "middle", "new / old", title=title)
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for name in old | new:
        before, after = old.get(name, []), new.get(name, [])
        figures = [f(side or [nan]) for side in (before, after) for f in (_least, median)]
        cells = [f"{figure:.3f}" for figure in figures]
        least_before, _, least_after, _ = figures
        has_ratio = before and after and least_before
        ratio = f"{least_after / least_before:.2f}" if has_ratio else ""
        table.add_row(name, *cells, ratio)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", type=Path, required=True, help="the other checkout")
    parser.add_argument("--new", type=Path, default=_HERE, help="this one, if none is named")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--own", action="store_true", help="run the benchmark of each checkout")
    parser.add_argument("--json", type=Path, help="also write the figures of all rounds there")
    parser.add_argument("bench", nargs="+", help="after --, a module of bench and its options")
    given = parser.parse_args()
    console = Console(highlight=False, width=_WIDTH)
    numbers: dict[str, Rounds] = {"old": {}, "new": {}}
    with TemporaryDirectory(prefix="almanac-compare-") as temporary:
        into = Path(temporary) / "results.json"
        folders = {
            side: link_checkout(checkout.resolve(), Path(temporary) / side, own=given.own)
            for side, checkout in (("old", given.old), ("new", given.new))
        }
        for number in range(given.rounds):
            for side, folder in folders.items():
                results = run_bench(folder, given.bench, into)
                for name, value in list_numbers(results.get("figures", results)):
                    numbers[side].setdefault(name, []).append(value)
                bars: Any = results.get("bars", {})
                for what, text in bars.items() if isinstance(bars, dict) else ():
                    console.print(f"round {number + 1}, {side}: {what}: {text}")
    load = os.getloadavg()[0]
    title = f"{' '.join(given.bench)}, {given.rounds} rounds, load {load:.2f} at the end"
    show_rounds(console, title, numbers["old"], numbers["new"])
    if given.json is not None:
        given.json.write_text(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
