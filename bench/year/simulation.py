"""The days of a year, one after the other: runs, polls, ticks, and the prune at midnight.

Belongs here: what happens when. Does not: how it is stored (replay), what is printed (__main__).
"""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Final
from unittest.mock import patch

import dagster as dg

from bench.year.pages import Asked, opened_pages
from bench.year.recorded import DAILY, FAILED, MERGE, PRUNE, record
from bench.year.replay import Replay, of_the_past
from pipeline.build import owned_by
from pipeline.instance import config, instance_of
from pipeline.retention.lengths import Retention
from pipeline.retention.prune import prune_instance
from pipeline.session import home_of
from pipeline.settings import Settings
from warehouse.home import Home

LANDED: Final = "landed_events"
_POLLED: Final = "polled_events"
_TABLE: Final = "events"
_TICKS_S: Final = {
    "unmerged_batches": 30,
    "polls": 60,
    "quota": 60,
    "cancellations": 600,
    "alerts": 300,
    "digests": 300,
    "health": 300,
}
_POLLS_FROM: Final = timedelta(minutes=30)
_POLL_EVERY: Final = timedelta(minutes=14, seconds=30)
"""So that 96 polls fit between the daily run and midnight."""


@dataclass(frozen=True, slots=True)
class DayEnd:
    """The size of `dagster/` before and after the prune of a day, and how long that took.

    `partitions` is how many days are materialised.
    """

    day: datetime
    runs: int
    partitions: int
    mb_before: float
    mb_after: float
    seconds: float


class Year:
    """The records of a home over many days, in a folder."""

    def __init__(self, folder: Path, *, news: int, failures: int) -> None:
        self._now = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
        self._news, self._failures = news, failures
        self.templates, self._polled = record(folder, now=self._now)
        self._settings = Settings(_env_file=None, home=folder / "home", state=folder / "state")  # type: ignore[call-arg]
        self._home = home_of(self._settings)
        self._chance = random.Random(1)
        self.runs = 0

    def days(self, count: int) -> Iterator[DayEnd]:
        """Simulate the last days up to today."""
        owned = replace(owned_by(self._settings), home=self._home)
        retention = Retention.of(self._settings)
        ticks_kept = config()["retention"]["sensor"]["purge_after_days"]
        with instance_of(self._home) as instance:
            replay = Replay(instance, self._home)
            for midnight in of_the_past(count, self._now):
                self._day(replay, midnight)
                at = midnight + timedelta(days=1)
                replay.as_daemon(at, ticks_kept)
                before = megabytes(self._home)
                began = perf_counter()
                prune_instance(instance, owned, retention, at)
                yield DayEnd(
                    midnight,
                    instance.get_runs_count(),
                    len(instance.get_materialized_partitions(dg.AssetKey(LANDED))),
                    before,
                    megabytes(self._home),
                    perf_counter() - began,
                )

    def page_times(self) -> dict[str, tuple[Asked, Asked]]:
        """Return what the queries behind each page take: the first time, and again."""
        # The code server reads its settings from the environment.
        given = {
            "ALMANAC_HOME": str(self._home.root),
            "ALMANAC_STATE": str(self._settings.state),
            "DAGSTER_HOME": str(self._home.dagster),
        }
        with (
            patch.dict(os.environ, given),
            dg.DagsterInstance.get() as instance,
            opened_pages(instance) as pages,
        ):
            newest = instance.get_runs(limit=1)[0].run_id
            first = pages.times(newest, LANDED, _TABLE)
            again = pages.times(newest, LANDED, _TABLE)
        return {name: (asked, again[name]) for name, asked in first.items()}

    def _day(self, replay: Replay, midnight: datetime) -> None:
        replay.run(self.templates[DAILY], midnight + timedelta(minutes=20), midnight.date())
        for number in sorted(self._chance.sample(range(96), self._news)):
            at = midnight + _POLLS_FROM + number * _POLL_EVERY
            replay.poll(dg.AssetKey(_POLLED), self._polled, at)
            failed = self._chance.random() * 100 < self._failures
            replay.run(self.templates[FAILED if failed else MERGE], at + timedelta(minutes=1))
        replay.run(self.templates[PRUNE], midnight + timedelta(hours=23, minutes=59))
        replay.ticks(midnight, _TICKS_S)
        self.runs += 2 + self._news


def megabytes(home: Home) -> float:
    """Return the size of a home's Dagster folder, in MB (10^6 bytes)."""
    return sum(path.stat().st_size for path in home.dagster.rglob("*") if path.is_file()) / 1e6
