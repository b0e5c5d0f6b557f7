"""`python -m bench.lake.age`: what a commit to the Iceberg tables costs after a year of commits.

The home begins with `--history` days. Then each of `--days` days has some deliveries, and each is
merged and committed, on a clock that runs ahead. Printed
are the commits of the first and the last day, the metadata, the files before and after their
removal, and whether a reader that pinned a publication some days before the end reads the same.
"""

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, Final

from rich.console import Console

from almanac.lake import open_lake
from bench.report import parse_arguments
from bench.warehouse.homes import LAST_DAY, deliver, make_home
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.iceberg.publication_commit import commit_publication
from warehouse.iceberg.upkeep import find_differences, remove_orphans
from warehouse.iceberg_place import IcebergPlace

_PINNED_DAYS: Final = 5
"""So many days before the end a reader pins the newest publication."""


def run_year(
    root: Path, *, events: int, coins: int, history: int, days: int, a_day: int
) -> dict[str, Any]:
    """Return the figures of so many days with some commits each."""
    home, folder = Home(root / "home"), root / "iceberg"
    place = IcebergPlace(f"sqlite:///{folder}/catalog.sqlite", f"file://{folder}")
    make_home(home, events=events, coins=coins, versions=2 * events, days=history)
    began = datetime.now(UTC)
    seconds: list[float] = []
    cpu: list[float] = []
    pinned, rows = None, 0
    for day in range(days):
        for number in range(a_day):
            step = day * a_day + number
            at = datetime.combine(LAST_DAY, datetime.min.time(), UTC)
            deliver(home, step, at=at + timedelta(days=day + 1, hours=1 + 20 * number / a_day))
            merge(home)
            now = began + timedelta(days=day, hours=20 * number / a_day)
            start, cpu_start = perf_counter(), process_time()
            report = commit_publication(
                home, place, now=partial(datetime.fromtimestamp, now.timestamp(), UTC)
            )
            seconds.append(perf_counter() - start)
            cpu.append(process_time() - cpu_start)
            if report is None or report.why_failed:
                raise ValueError(f"commit {step} failed: {report}")
        if day == days - 1 - _PINNED_DAYS:
            reader = open_lake(f"sqlite:///{folder}/catalog.sqlite")
            pinned, rows = reader.publication(), reader.read("event_versions").num_rows
    before = _measure_folder(folder)
    later = began + timedelta(days=days)
    for path in folder.rglob("*"):  # Files have the time of this run, and are as old as it says.
        os.utime(path, (began.timestamp(), began.timestamp()))
    removed = remove_orphans(place, later)
    reader = open_lake(f"sqlite:///{folder}/catalog.sqlite")
    still = 0 if pinned is None else reader.read("event_versions", publication=pinned).num_rows
    metadata = {
        table: Path(reader.table(table).metadata_location.removeprefix("file://")).stat().st_size
        for table in (*reader.publication().snapshots, "publications")
    }
    return {
        "commits": len(seconds),
        "first day: median s": median(seconds[1:a_day]),
        "last day: median s": median(seconds[-a_day:]),
        "last commit: s": seconds[-1],
        "last commit: cpu s": cpu[-1],
        "median of the last 100: s": median(seconds[-100:]),
        "metadata: bytes, largest table": max(metadata.values()),
        "metadata: bytes, all tables": sum(metadata.values()),
        "snapshots": {name: len(reader.table(name).snapshots()) for name in metadata},
        "files and bytes before removal": before,
        "files removed": len(removed),
        "files and bytes after removal": _measure_folder(folder),
        "pinned reader: rows then and now": (rows, still),
        "differences": [*find_differences(home, place, deep=True)],
    }


def _measure_folder(folder: Path) -> tuple[int, int]:
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)


def main() -> None:
    """Print the figures."""
    sizes = {"events": 2_000, "coins": 200, "history": 2, "days": 365, "a_day": 4}
    given = parse_arguments("What a commit to the Iceberg tables costs after a year.", **sizes)
    with TemporaryDirectory(dir=given.folder) as folder:
        chosen = {name: getattr(given, name) for name in sizes}
        figures = run_year(Path(folder), **chosen)
    console = Console(highlight=False)
    load = os.getloadavg()[0]
    console.print(f"{chosen}, Python {sys.version.split()[0]}, load average {load:.1f} at the end")
    for name, value in figures.items():
        shown = f"{value:.3f}" if isinstance(value, float) else value
        console.print(f"{name}: {shown}")
    if given.json is not None:
        given.json.write_text(json.dumps({"sizes": chosen, "figures": figures}, indent=1))


if __name__ == "__main__":
    main()
