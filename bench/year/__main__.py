"""`python -m bench.year`: the records of a year, and how fast Dagster's pages are at its end.

    python -m bench.year [--days 365] [--polls 96] [--news 12] [--failures 2] [--folder DIR]

Each day has a daily run, ticks of every sensor, and polls; `--news` of the polls bring news, and so
start a merge; `--failures` in 100 merges fail. Once a day, at 03:40, the production prune runs at
that time, with the default lengths.

Real: one run of each kind, executed by the real jobs over the sandbox's whole catalog (48,000
events); the storage, which is Dagster's own SQLite; the prune; the web server. Replayed: the same
run at all other times, each stored in full (index, own database, record, output). Without a run:
polls that bring nothing start none. The daemon does not run; its deletion of ticks is called as the
daemon does.
"""

import json
import os
import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

import dagster as dg
from rich.console import Console
from rich.table import Table

from bench.report import parse_arguments
from bench.year.pages import opened_pages
from bench.year.recorded import DAILY, FAILED, MERGE, PRUNE, record
from bench.year.replay import Replay, of_the_past
from pipeline.build import owned_by
from pipeline.instance import config, instance_of
from pipeline.retention.lengths import Retention
from pipeline.retention.prune import prune_instance
from pipeline.session import home_of
from pipeline.settings import Settings
from warehouse.home import Home

BAR_MB: Final = 200
BAR_S: Final = 2.0
_LANDED: Final = "landed_events"
_TABLE: Final = "events"
_TICKS_S: Final = {
    "unmerged_batches": 30,
    "polls": 60,
    "quota": 60,
    "cancellations": 600,
    "alerts": 300,
    "digests": 300,
}
_POLLED: Final = {"rows": 812, "rejected": 0, "requests": 3, "outcome": "landed, 812 rows"}


@dataclass(frozen=True, slots=True)
class DayEnd:
    """The size of `dagster/` before and after the prune of a day, and what that took."""

    day: datetime
    runs: int
    mb_before: float
    mb_after: float
    seconds: float


def main() -> None:
    arguments = parse_arguments(__doc__ or "", days=365, polls=96, news=12, failures=2)
    with TemporaryDirectory(dir=arguments.folder) as folder:
        simulate(Path(folder), arguments.days, arguments.news, arguments.failures, arguments.json)


def simulate(folder: Path, days: int, news: int, failures: int, into: Path | None) -> None:
    """Simulate days, and print their sizes and the times of the pages."""
    console = Console(highlight=False)
    now = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    templates = record(folder, now=now)
    for kind, template in templates.items():
        console.print(
            f"run {kind}: {template.bytes / 1e3:,.0f} kB in its own database, "
            f"{template.index_bytes / 1e3:,.0f} kB in the index"
        )
    settings = Settings(_env_file=None, home=folder / "home", state=folder / "state")  # type: ignore[call-arg]
    home, retention, chance = home_of(settings), Retention.of(settings), random.Random(1)
    owned = replace(owned_by(settings), home=home)
    ends: list[DayEnd] = []
    ended = {"runs": 0}
    with instance_of(home) as instance:
        replay = Replay(instance, home)
        for midnight in of_the_past(days, now):
            replay.run(templates[DAILY], midnight + timedelta(minutes=20), midnight.date())
            replay.run(templates[PRUNE], midnight + timedelta(hours=3, minutes=40))
            for minute in sorted(chance.sample(range(60, 1_430, 14), news)):
                at = midnight + timedelta(minutes=minute)
                replay.poll(dg.AssetKey(_LANDED), _POLLED, at)
                failed = chance.random() * 100 < failures
                replay.run(templates[FAILED if failed else MERGE], at + timedelta(minutes=1))
            replay.ticks(midnight, _TICKS_S)
            ended["runs"] += 2 + news
            at = midnight + timedelta(days=1)
            replay.as_daemon(at, config()["retention"]["sensor"]["purge_after_days"])
            before = megabytes(home)
            began = perf_counter()
            prune_instance(instance, owned, retention, at)
            seconds = perf_counter() - began
            ends.append(DayEnd(at, instance.get_runs_count(), before, megabytes(home), seconds))
            if len(ends) % 30 == 0 or len(ends) == days:
                show_day(console, len(ends), ends[-1])
        newest = instance.get_runs(limit=1)[0].run_id
        partitions = len(instance.get_materialized_partitions(dg.AssetKey(_LANDED)))
    os.environ["ALMANAC_HOME"], os.environ["ALMANAC_STATE"] = str(home.root), str(folder / "state")
    os.environ["DAGSTER_HOME"] = str(home.dagster)
    with dg.DagsterInstance.get() as instance, opened_pages(instance) as pages:
        first = pages.times(newest, _LANDED, _TABLE)
        second = pages.times(newest, _LANDED, _TABLE)
    table = Table("page", "first, s", "again, s")
    for name, seconds in first.items():
        table.add_row(name, f"{seconds:.2f}", f"{second[name]:.2f}")
    console.print(table)
    most = max(end.mb_before for end in ends)
    console.print(
        f"{ended['runs']:,} runs in {days} days; {ends[-1].runs} are kept; {partitions} partitions "
        f"of {_LANDED} are materialised\n"
        f"dagster/: {ends[-1].mb_after:.0f} MB at the end, at most {most:.0f} MB (bar {BAR_MB})\n"
        f"slowest page: {max(first.values()):.2f} s (bar {BAR_S:g}); "
        f"slowest prune: {max(end.seconds for end in ends):.1f} s; "
        f"load average {os.getloadavg()[0]:.1f}"
    )
    if into is not None:
        figures = {"pages": first, "most_mb": most, "end_mb": ends[-1].mb_after, "runs": ended}
        into.write_text(json.dumps(figures, indent=1))
    assert partitions == days, f"{partitions} partitions are materialised, expected {days}"


def show_day(console: Console, number: int, end: DayEnd) -> None:
    console.print(
        f"day {number:>3}: {end.runs:>4} runs, {end.mb_before:6.1f} MB before the prune, "
        f"{end.mb_after:6.1f} MB after it, {end.seconds:.1f} s"
    )


def megabytes(home: Home) -> float:
    """Return the size of a home's Dagster folder, in MB (10^6 bytes)."""
    return sum(path.stat().st_size for path in home.dagster.rglob("*") if path.is_file()) / 1e6


if __name__ == "__main__":
    main()
