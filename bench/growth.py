"""`python -m bench.growth`: what a day costs after 10, 100, 365 and 1,000 days of exports.

A home lands exports without a merge and merges them together, up to each number of days. Then it
takes some days one by one, as `bench.peers` does: it lands the export and a pull of the
cancellations, and merges. Times are of the processor, in all threads: other work on the machine
affects them least. A second home has ten days of a million events (`--large 0` leaves it out).
"""

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Final

import duckdb
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.children import Stopwatch
from bench.exports import known_at, write_export
from bench.homes import land_cancellations, land_export
from warehouse.history.merge import merge
from warehouse.home import Home

SAMPLES: Final = 7
"""Days that are measured: exports are packed each seventh day."""
_LARGE_SAMPLES: Final = 2
_LARGE_DAYS: Final = 10
_CHANGED: Final = 7
"""Of a thousand events, each day."""


@dataclass(frozen=True, slots=True)
class DayCost:
    """The cost of a day after so many days. Processor seconds, without landing; sizes in MB."""

    events: int
    days: int
    median_s: float
    mean_s: float
    land_s: float
    versions: int
    warehouse_mb: float
    home_mb: float


class GrowingHome:
    """A home whose history grows by an export a day."""

    def __init__(self, root: Path, events: int) -> None:
        self.home = Home(root)
        self._events = events
        self._export = root.with_suffix(".csv")
        self.days = 0

    def land_day(self) -> float:
        """Land the next day; return the processor seconds of it."""
        write_export(
            self._export,
            events=self._events,
            number=self.days,
            changed_per_mille=_CHANGED,
            inserted=max(1, self._events // 2_500),
        )
        watch, at = Stopwatch(), known_at(self.days)
        land_export(self.home, self._export, at)
        land_cancellations(self.home, at + timedelta(minutes=1))
        self.days += 1
        return watch.figures()["cpu"]

    def measure(self, samples: int) -> DayCost:
        """Take some more days, and return what one of them costs."""
        after, merges, landings = self.days, list[float](), list[float]()
        for _ in range(samples):
            landings.append(self.land_day())
            watch = Stopwatch()
            merge(self.home)
            merges.append(watch.figures()["cpu"])
        with duckdb.connect(self.home.warehouse, read_only=True) as connection:
            ((versions,),) = connection.execute("SELECT count(*) FROM event_versions").fetchall()
        files = (path.stat() for path in self.home.root.rglob("*") if path.is_file())
        sizes = {entry.st_ino: entry.st_size for entry in files}  # Hard links count once.
        return DayCost(
            events=self._events,
            days=after,
            median_s=median(merges),
            mean_s=mean(merges),
            land_s=median(landings),
            versions=versions,
            warehouse_mb=self.home.warehouse.stat().st_size / 1e6,
            home_mb=sum(sizes.values()) / 1e6,
        )


def measure_growth(root: Path, events: int, days: list[int], samples: int) -> list[DayCost]:
    """Return the cost of a day after each number of days."""
    home, found = GrowingHome(root, events), list[DayCost]()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{events:,} events", total=max(days) + samples)
        for each in days:
            while home.days < each:
                home.land_day()
                progress.update(task, completed=home.days)
            merge(home.home)
            found.append(home.measure(samples))
    return found


def show_costs(costs: list[DayCost]) -> None:
    console = Console(highlight=False)
    title = f"A day of exports, processor seconds; load average {os.getloadavg()[0]:.2f} at the end"
    heads = ("events", "after days", "merge, median", "mean", "landing", "versions")
    table = Table(*heads, "warehouse.duckdb, MB", "all files, MB", title=title)
    for column in table.columns:
        column.justify = "right"
    for cost in costs:
        seconds = (f"{each:.2f}" for each in (cost.median_s, cost.mean_s, cost.land_s))
        sizes = (f"{each:,.1f}" for each in (cost.warehouse_mb, cost.home_mb))
        table.add_row(f"{cost.events:,}", f"{cost.days:,}", *seconds, f"{cost.versions:,}", *sizes)
    console.width = max(console.width, 110)
    console.print(table)


def _read_days(text: str) -> list[int]:
    return sorted({int(day) for day in text.split(",")})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=5_000)
    parser.add_argument("--days", type=_read_days, default=[10, 100, 365, 1_000])
    parser.add_argument("--large", type=int, default=1_000_000, help="events of the second home")
    parser.add_argument("--folder", type=Path, help="where to work; else a temporary folder")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    with TemporaryDirectory(prefix="almanac-growth-", dir=given.folder) as folder:
        costs = measure_growth(Path(folder) / "small", given.events, given.days, SAMPLES)
        if given.large:
            large = Path(folder) / "large"
            costs += measure_growth(large, given.large, [_LARGE_DAYS], _LARGE_SAMPLES)
    show_costs(costs)
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
