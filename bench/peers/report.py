"""The results of the sides: a table for people, JSON for programs."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.peers.comparison import Counts
from bench.peers.sides import ALMANAC, LATE, ONE_FILE_ALSO, SIDES

_CANNOT: Final = {side.name: side.cannot for side in SIDES}
_WINDOW: Final = 5
"""The figure of a day is the median of so many days up to it."""
_TARGETS: Final = {"dlt": 0.8, ONE_FILE_ALSO: 1.1}
"""Of Almanac's day to the day of another side."""
Figures = dict[str, dict[str, float]]
"""The figures of each side by name, with their unit."""


@dataclass(slots=True)
class SideResults:
    """The figures that one round measured of a side."""

    versions: dict[str, str] = field(default_factory=dict)
    days: dict[int, dict[str, float]] = field(default_factory=dict)
    late: dict[str, float] = field(default_factory=dict)
    counts: Counts = field(default_factory=dict)
    sizes: dict[str, float] = field(default_factory=dict)
    questions: dict[str, float] = field(default_factory=dict)


def show_results(
    console: Console,
    title: str,
    rounds: list[dict[str, SideResults]],
    days: list[int],
    into: Path | None,
) -> None:
    """Print the histories, then the least figures of the rounds, and where Almanac loses."""
    figures = _find_least([_summarise(each, days) for each in rounds])
    targets = _judge(figures, f"day {days[-1]}, s")
    console.print(f"{title}; load average {os.getloadavg()[0]:.2f} at the end")
    for name, found in rounds[0].items():
        console.print(f"  {name}: {', '.join(map(' '.join, found.versions.items()))}")
    console.print(_lay_out_histories(rounds[0]))
    console.print(_lay_out_figures(figures))
    for name, text in targets.items():
        console.print(f"{name}: {text}")
    if into is not None:
        histories = {name: found.counts for name, found in rounds[0].items()}
        record = {"title": title, "figures": figures, "bars": targets, "histories": histories}
        into.write_text(json.dumps(record, indent=1))


def _summarise(round_: dict[str, SideResults], days: list[int]) -> Figures:
    return {name: dict(_list_figures(found, days)) for name, found in round_.items()}


def _list_figures(found: SideResults, days: list[int]) -> Iterator[tuple[str, float]]:
    yield "first load, s", found.days[0]["seconds"]
    yield "first load, processor s", found.days[0]["cpu"]
    last = [found.days[0]]
    for day in days:
        last = [each for n, each in found.days.items() if max(0, day - _WINDOW) < n <= day]
        yield f"day {day}, s", median(each["seconds"] for each in last)
    yield f"day {days[-1]}, processor s", median(each["cpu"] for each in last)
    if "land" in last[0]:
        yield f"day {days[-1]}, landing s", median(each["land"] for each in last)
    if found.late:
        yield "late day, s", found.late["seconds"]
    yield "peak memory, MB", last[-1]["peak_mb"]
    yield from found.sizes.items()
    yield from found.questions.items()


def _find_least(rounds: list[Figures]) -> Figures:
    return {
        name: {key: min(each[name][key] for each in rounds) for key in of}
        for name, of in rounds[0].items()
    }


def _lay_out_histories(round_: dict[str, SideResults]) -> Table:
    table = Table("rows of the history", "rows", *round_)
    kinds = {kind: n for found in round_.values() for kind, (n, _) in found.counts.items() if n}
    for kind, rows in sorted(kinds.items(), key=lambda each: (each[0] == LATE, -each[1])):
        cells = ["cannot" if kind in _CANNOT[name] else "equal" for name in round_]
        table.add_row(kind, f"{rows:,}", *cells)
    return table


def _lay_out_figures(figures: Figures) -> Table:
    table = Table("", *figures, "Almanac loses to (times)")
    for column in table.columns[1:-1]:
        column.justify = "right"
    for key in dict.fromkeys(key for of in figures.values() for key in of):
        mine = figures.get(ALMANAC, {}).get(key, 0)
        losses = [
            f"{name} {mine / of[key]:.2f}"
            for name, of in figures.items()
            if key in of and 0 < of[key] < mine
        ]
        cells = [_figure(of.get(key)) for of in figures.values()]
        table.add_row(key, *cells, ", ".join(losses))
    return table


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _judge(figures: Figures, key: str) -> dict[str, str]:
    return {
        f"{key}: target at most {bar} x {name}": f"{figures[ALMANAC][key] / figures[name][key]:.2f}"
        for name, bar in _TARGETS.items()
        if {name, ALMANAC} <= figures.keys()
    }
