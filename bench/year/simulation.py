"""The days of a year, one after the other: runs, polls, faults, ticks, and the prune at midnight.

Belongs here: what happens when. Does not: how it is stored (replay), what is printed (__main__).
"""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any, Final
from unittest.mock import patch

import dagster as dg

from bench.children import environment_without_settings, measure
from bench.year.daemon import megabytes
from bench.year.deliveries import PLAN, Deliveries
from bench.year.faults import DAILY_AT, DAY, MINUTE, SOON, Faults, Part, Planned, Step
from bench.year.pages import Asked, opened_pages
from bench.year.recorded import DAILY, MERGE, PRUNE, record
from bench.year.replay import Replay, of_the_past
from bench.year.warnings import Fault, Watch
from pipeline.home_location import locate_home
from pipeline.instance import config, instance_of
from pipeline.retention import prune_home
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
    "digest": 300,
    "health": 300,
}
_POLLS_FROM: Final = timedelta(minutes=30)
_POLL_EVERY: Final = timedelta(minutes=14, seconds=30)
"""So that 96 polls fit between the daily run and midnight."""
_NOBODY: Final = "http://127.0.0.1:9/"
_CHECKS: Final = (timedelta(minutes=25), *(timedelta(hours=hours) for hours in range(3, 24, 3)))
_FIRST_FAULT: Final = 7


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
    """The records of a home over many days, in a folder. `fault_every` is in days, 0 is never."""

    def __init__(self, folder: Path, *, news: int, failures: int, fault_every: int = 0) -> None:
        self._now = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
        self._news, self._failures, self._fault_every = news, failures, fault_every
        recorded = folder / "recorded"
        self.templates, self._polled = record(recorded, now=self._now)
        self._recorded = Home(recorded / "home")
        root = folder / "home"
        root.mkdir(mode=0o700)
        self.settings = Settings(_env_file=None, home=root, state=folder / "state")  # type: ignore[call-arg]
        self.home = locate_home(self.settings)
        self.watch = Watch(self.settings, self.home)
        self.faults: list[Fault] = []
        self._deliveries = Deliveries(self.home)
        self._chance = random.Random(1)
        self._plans: list[Planned] = []
        self.runs = 0

    def days(self, count: int) -> Iterator[DayEnd]:
        """Simulate the last days up to today."""
        ticks_kept = config()["retention"]["sensor"]["purge_after_days"]
        with instance_of(self._recorded) as other, instance_of(self.home) as instance:
            replay = Replay(instance, self.home)
            replay.adopt(other, self.templates.values())
            faults = Faults(
                self.home, self._deliveries, replay, instance, self.templates, self.faults
            )
            for number, midnight in enumerate(of_the_past(count, self._now)):
                has_fault = self._has_fault(number, count)
                self._day(replay, faults, midnight, has_fault=has_fault)
                self.runs = replay.runs
                at = midnight + DAY
                before = megabytes(self.home)
                began = perf_counter()
                if not self._is_off("daemon", at):
                    replay.as_daemon(at, ticks_kept)
                    prune_home(self.home, self.settings, at, instance=instance)
                yield DayEnd(
                    midnight,
                    instance.get_runs_count(),
                    len(instance.get_materialized_partitions(dg.AssetKey(LANDED))),
                    before,
                    megabytes(self.home),
                    perf_counter() - began,
                )

    def page_times(self) -> dict[str, tuple[Asked, Asked]]:
        """Return what the queries behind each page take: the first time, and again."""
        with (
            patch.dict(os.environ, self._environment(), clear=True),
            dg.DagsterInstance.get() as instance,
            opened_pages(instance) as pages,
        ):
            newest = instance.get_runs(limit=1)[0].run_id
            first = pages.times(newest, LANDED, _TABLE)
            again = pages.times(newest, LANDED, _TABLE)
        return {name: (asked, again[name]) for name, asked in first.items()}

    def memory(self, rounds: int) -> list[dict[str, Any]]:
        """Return the memory of daemon and code server over rounds of ticks, as they printed it."""
        given = {
            **self._environment(),
            "ALMANAC_PLAN": PLAN,
            # They decide as ever, and find nothing left to spend.
            "ALMANAC_POLLS_QUOTA": "0",
            # Sensors with something to post to; there is nothing to post.
            "ALMANAC_ALERT_URL": _NOBODY,
            "ALMANAC_DIGEST_URL": _NOBODY,
            "MALLOC_ARENA_MAX": "2",
        }
        with patch.dict(os.environ, given, clear=True):
            figures = measure("bench.year.daemon", str(rounds)).figures
        return list(figures["memory"])

    def _environment(self) -> dict[str, str]:
        """Return the settings as the programs of the home read them."""
        return {
            **environment_without_settings(),
            "ALMANAC_HOME": str(self.home.root),
            "ALMANAC_STATE": str(self.settings.state),
            "DAGSTER_HOME": str(self.home.dagster),
        }

    def _has_fault(self, number: int, count: int) -> bool:
        """Whether a fault begins on a day: none does on the first days, nor so late that its
        warnings outlast the year."""
        every = self._fault_every
        return bool(every) and _FIRST_FAULT <= number < count - _FIRST_FAULT and number % every == 0

    def _day(self, replay: Replay, faults: Faults, midnight: datetime, *, has_fault: bool) -> None:
        if has_fault:
            self._plans.append(faults.next(midnight))
        daily_at, prune_at = midnight + DAILY_AT, midnight + timedelta(hours=23, minutes=59)
        steps: list[Step] = []
        if not self._is_off("daily", daily_at):
            steps.append((daily_at, lambda: self._deliveries.daily(daily_at)))
            steps += self._run(replay, DAILY, daily_at, daily_at)
        for number in sorted(self._chance.sample(range(96), self._news)):
            at = midnight + _POLLS_FROM + number * _POLL_EVERY
            failed = self._chance.random() * 100 < self._failures
            if not self._is_off("polls", at):
                steps += self._poll(replay, faults, at, failed=failed)
        steps += self._run(replay, PRUNE, prune_at)
        for planned in self._plans:
            steps += [step for step in planned.steps if step[0].date() == midnight.date()]
        checks = {midnight + at for at in _CHECKS}
        for fault in faults.faults:
            for at in (fault.begins + MINUTE, fault.ends - MINUTE, fault.ends + SOON):
                if at.date() == midnight.date():
                    checks.add(at)
        ticked_until = midnight
        everything = [*((at, 0, act) for at, act in steps), *((at, 1, None) for at in checks)]
        for at, _, act in sorted(everything, key=lambda each: each[:2]):
            if act is not None:
                act()
                continue
            self._tick(replay, ticked_until, at)
            ticked_until = at
            self.watch.check(at)
        self._tick(replay, ticked_until, midnight + DAY)

    def _poll(self, replay: Replay, faults: Faults, at: datetime, *, failed: bool) -> list[Step]:
        """Return the steps of a poll that brings news."""
        polled: Step = (at, lambda: replay.poll(dg.AssetKey(_POLLED), self._polled, at))
        merged_at = at + MINUTE
        if not failed:
            return [polled, *self._run(replay, MERGE, merged_at)]
        return [polled, *faults.merge_fails_once(merged_at)]

    def _run(
        self, replay: Replay, kind: str, at: datetime, day: datetime | None = None
    ) -> list[Step]:
        if self._is_off("daemon", at):
            return []
        part = None if day is None else day.date()
        return [(at, lambda: replay.run(self.templates[kind], at, part))]

    def _tick(self, replay: Replay, begins: datetime, ends: datetime) -> None:
        """Store the ticks in a span of time, and that the daemon reported at its end."""
        spans = [span for planned in self._plans for span in planned.spans()]
        bounds = {at for span in spans for at in (span.begins, span.ends) if begins < at < ends}
        for at, until in pairwise(sorted({begins, *bounds, ends})):
            failing = {name for planned in self._plans for name in planned.failing_at(at)}
            if not self._is_off("daemon", at):
                replay.ticks(at, until, _TICKS_S, failing)
        if not self._is_off("daemon", ends):
            replay.beat(ends)

    def _is_off(self, part: Part, at: datetime) -> bool:
        spans = (planned.off.get(part) for planned in self._plans)
        return any(at in span for span in spans if span is not None)
