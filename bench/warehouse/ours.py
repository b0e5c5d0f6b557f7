"""Almanac doing the measured work. Run as a child: it prints its seconds by phase.

`seconds` are by the clock, `cpu` of the processor (all threads).
"""

import argparse
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.children import Stopwatch, print_figures
from bench.warehouse.exports import content_at
from warehouse.history.merge import MergeReport, merge, replay
from warehouse.history.verify import verify
from warehouse.home import Home
from warehouse.landing.batches import Manifest
from warehouse.landing.landing import import_export

SOURCE = "bench"
COVERS = (date(2016, 1, 1), date(2036, 1, 1))


def land(home: Home, export: Path, day: int) -> Manifest:
    """Land an export as if it had been pulled at six."""
    home.claim(SOURCE)
    true_at = content_at(day)
    return import_export(
        home.landing,
        export,
        content_at=true_at,
        observed_at=true_at + timedelta(hours=6),
        plan="elite",
        source=SOURCE,
        now=datetime(2036, 1, 1, tzinfo=UTC),
        covers=COVERS,
    )


def load(home: Home, exports: list[Path]) -> None:
    """Land, merge and publish one export."""
    watch = Stopwatch()
    land(home, exports[0], 0)
    landed = watch.figures()["seconds"]
    report = merge(home)
    print_figures(**watch.figures(), land=landed, **_phases(report))


def daily(home: Home, exports: list[Path]) -> None:
    """Merge the second of two exports; the first was merged before."""
    land(home, exports[1], 1)
    watch = Stopwatch()
    report = merge(home)
    print_figures(**watch.figures(), versions=report.versions, **_phases(report))


def replayed(home: Home, exports: list[Path]) -> None:
    """Replay a landing; what was folded before is rebuilt."""
    watch = Stopwatch()
    report = replay(home)
    print_figures(**watch.figures(), days=len(report.days), **_phases(report))


def landed(home: Home, exports: list[Path]) -> None:
    """Land exports, a day each, without merging."""
    watch = Stopwatch()
    for day, export in enumerate(exports):
        land(home, export, day)
    print_figures(**watch.figures())


def verified(home: Home, exports: list[Path]) -> None:
    """Verify the output; print each check that failed."""
    watch = Stopwatch()
    wrong = [f"{check.check}: {why}" for check in verify(home) for why in check.wrong]
    print_figures(**watch.figures(), wrong=wrong)


def merged(home: Home, exports: list[Path]) -> None:
    """Merge all unmerged batches, and publish."""
    watch = Stopwatch()
    report = merge(home)
    print_figures(**watch.figures(), versions=report.versions, **_phases(report))


WORK: dict[str, Callable[[Home, list[Path]], None]] = {
    "load": load,
    "daily": daily,
    "replay": replayed,
    "land": landed,
    "verify": verified,
    "merge": merged,
}


def _phases(report: MergeReport) -> dict[str, Any]:
    published = report.published
    return {
        "fold": report.seconds - (published.seconds if published else 0.0),
        "publish": published.seconds if published else 0.0,
        "mode": published.mode if published else "none",
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=tuple(WORK))
    parser.add_argument("home", type=Path)
    parser.add_argument("exports", nargs="*", type=Path)
    arguments = parser.parse_args()
    WORK[arguments.what](Home(arguments.home), arguments.exports)


if __name__ == "__main__":
    main()
