"""The faults of a year, one every few days: what happens, when, and what must be warned of.

Each is one that a person or the daemon remedies: until then its warnings last, afterwards they are
gone. Belongs here: the faults. Does not: the days between them (simulation), what was warned of
(warnings).
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Final, Literal

import dagster as dg
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from bench.year.deliveries import Deliveries
from bench.year.recorded import DAILY, FAILED, FAILED_DAILY, MERGE, Template
from bench.year.replay import Replay
from bench.year.warnings import Fault
from pipeline.runs.dead_runs import fail_dead_runs
from pipeline.runs.presence import FOLDER
from warehouse.home import Home

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
DAILY_AT: Final = timedelta(minutes=20)
SOON: Final = 5 * MINUTE
"""How often the sensors of warnings look; a check follows each remedy after as long."""
Part = Literal["daily", "polls", "daemon"]
Step = tuple[datetime, Callable[[], object]]


@dataclass(frozen=True, slots=True)
class Span:
    """From an instant to before another one."""

    begins: datetime
    ends: datetime

    def __contains__(self, at: datetime) -> bool:
        return self.begins <= at < self.ends


@dataclass(slots=True)
class Planned:
    """A fault, its steps, what does not run in a span, and the sensors whose ticks fail in one.

    Without polls there is no merge either, without the daemon nothing.
    """

    fault: Fault
    steps: list[Step]
    off: Mapping[Part, Span] = field(default_factory=dict)
    failing: Mapping[str, Span] = field(default_factory=dict)

    def spans(self) -> Iterator[Span]:
        """Yield the spans in which anything does not run, or fails."""
        yield from self.off.values()
        yield from self.failing.values()

    def failing_at(self, at: datetime) -> list[str]:
        """Return the sensors that fail at an instant."""
        return [name for name, span in self.failing.items() if at in span]


@dataclass(slots=True)
class Faults:
    """Plans faults of a home, each kind in turn."""

    home: Home
    deliveries: Deliveries
    replay: Replay
    instance: dg.DagsterInstance
    templates: Mapping[str, Template]
    faults: list[Fault] = field(default_factory=list)
    _kinds: Iterator[Callable[[datetime], Planned]] = field(init=False)

    def __post_init__(self) -> None:
        self._kinds = cycle(
            [
                self._merges_fail,
                self._nobody_merges,
                self._daily_fails,
                self._daemon_is_down,
                self._nobody_pulls,
                self._run_hangs,
                self._run_is_killed,
                self._ticks_fail,
                self._older_file_is_restored,
                self._backfill_hangs,
                self._pull_is_partial,
                self._body_is_no_catalog,
            ]
        )

    def next(self, midnight: datetime) -> Planned:
        """Plan the next fault for a day."""
        planned = next(self._kinds)(midnight)
        self.faults.append(planned.fault)
        return planned

    def merge_fails_once(self, at: datetime) -> list[Step]:
        """Plan a merge that fails and is repeated by the sensor a minute later."""
        again = at + 2 * MINUTE
        self.faults.append(_fault("a merge fails once", at, again, "failed_runs"))
        return [
            (at, lambda: self.replay.run(self.templates[FAILED], at)),
            (again, lambda: self.replay.run(self.templates[MERGE], again)),
        ]

    def _merges_fail(self, midnight: datetime) -> Planned:
        at, ends = midnight + 9 * HOUR, midnight + 15 * HOUR
        failed_at, wait = at + MINUTE, MINUTE
        steps: list[Step] = [(at, lambda: self.deliveries.news(at))]
        while failed_at < ends:
            steps.append((failed_at, self._run_at(FAILED, failed_at)))
            wait = min(2 * wait, HOUR)
            failed_at += wait
        steps += self._merge_steps(ends)
        fault = _fault("merges fail for six hours", at, ends, "failed_runs unmerged")
        return Planned(fault, steps, off={"polls": Span(at, ends)})

    def _nobody_merges(self, midnight: datetime) -> Planned:
        at, ends = midnight + 10 * HOUR, midnight + 16 * HOUR
        steps: list[Step] = [(at, lambda: self.deliveries.news(at)), *self._merge_steps(ends)]
        fault = _fault("a landed batch is not merged", at, ends, "unmerged")
        return Planned(fault, steps, off={"polls": Span(at, ends)})

    def _daily_fails(self, midnight: datetime) -> Planned:
        at, ends = midnight + DAILY_AT, midnight + 8 * HOUR
        steps: list[Step] = [
            (at, lambda: self.deliveries.land_all(at)),
            (at, self._run_at(FAILED_DAILY, at, day=midnight)),
            (ends, lambda: self.deliveries.merge(ends)),
            (ends, self._run_at(DAILY, ends, day=midnight)),
        ]
        fault = _fault("the daily run fails", at, ends, "failed_runs unmerged")
        return Planned(
            fault, steps, off={"daily": Span(midnight, ends), "polls": Span(midnight, ends)}
        )

    def _daemon_is_down(self, midnight: datetime) -> Planned:
        at, ends = midnight + 10 * MINUTE, midnight + DAY + 10 * MINUTE
        over = midnight + 3 * DAY + 3 * HOUR
        fault = _fault("the daemon is down for a day", at, ends, "daemon coverage", over)
        return Planned(
            fault,
            [],
            off={"daily": Span(at, ends), "polls": Span(at, ends), "daemon": Span(at, ends)},
        )

    def _nobody_pulls(self, midnight: datetime) -> Planned:
        ends = midnight + 3 * DAY + DAILY_AT
        feeds = ("export", "events", "cancellations", "coins", "categories")
        kinds = " ".join(["coverage", *(f"stale:{feed}" for feed in feeds)])
        over = midnight + 5 * DAY + 3 * HOUR
        fault = _fault("no daily pull for three days", midnight, ends, kinds, over)
        return Planned(fault, [], off={"daily": Span(midnight, ends)})

    def _run_hangs(self, midnight: datetime) -> Planned:
        at, ends = midnight + 8 * HOUR, midnight + 14 * HOUR
        started: list[str] = []
        steps: list[Step] = [
            (at, lambda: started.append(self.replay.start(self.templates[MERGE], at))),
            (ends, lambda: self.replay.end(started[0], dg.DagsterRunStatus.CANCELED, ends)),
        ]
        fault = _fault("a run hangs for six hours", at, ends, "long_runs")
        return Planned(fault, steps, off={"polls": Span(at, ends)})

    def _run_is_killed(self, midnight: datetime) -> Planned:
        at, ends = midnight + 10 * HOUR, midnight + 16 * HOUR
        merged_at = ends + 10 * MINUTE
        started: list[str] = []

        def killed() -> None:
            started.append(self.replay.start(self.templates[MERGE], at))
            running = self.home.dagster / FOLDER
            running.mkdir(exist_ok=True)
            (running / f"1-{at:%Y%m%d}.lock").write_text(f"{started[0]}\n")

        def found() -> None:
            fail_dead_runs(self.home, self.instance)
            # It is stored at the machine's time.
            self.replay.end(started[0], dg.DagsterRunStatus.FAILURE, ends)

        steps: list[Step] = [
            (at, killed),
            (ends, found),
            (merged_at, self._run_at(MERGE, merged_at)),
        ]
        kinds = "runs daemon failed_runs"
        fault = _fault("the machine is off for six hours, in a merge", at, merged_at, kinds)
        return Planned(fault, steps, off={"polls": Span(at, merged_at), "daemon": Span(at, ends)})

    def _ticks_fail(self, midnight: datetime) -> Planned:
        at, ends = midnight + 12 * HOUR, midnight + 15 * HOUR
        fault = _fault("a sensor fails for three hours", at, ends, "ticks")
        failing = {"unmerged_batches": Span(at, ends)}
        return Planned(fault, [], off={"polls": Span(at, ends)}, failing=failing)

    def _older_file_is_restored(self, midnight: datetime) -> Planned:
        at, ends = midnight + HOUR, midnight + 9 * HOUR
        kept = Path(f"{self.home.warehouse}.older")
        before = midnight + 10 * MINUTE
        steps: list[Step] = [
            (before, lambda: shutil.copyfile(self.home.warehouse, kept)),
            (at, lambda: kept.replace(self.home.warehouse)),
            *self._merge_steps(ends),
        ]
        fault = _fault("an older published file is put back", at, ends, "unpublished")
        return Planned(fault, steps, off={"polls": Span(before, ends)})

    def _backfill_hangs(self, midnight: datetime) -> Planned:
        at, ends = midnight + 9 * HOUR, midnight + 13 * HOUR
        requested, canceled = (
            PartitionBackfill(
                backfill_id=f"b{at:%y%m%d}",
                status=status,
                from_failure=False,
                tags={},
                backfill_timestamp=at.timestamp(),
                partition_set_origin=None,
            )
            for status in (BulkActionStatus.REQUESTED, BulkActionStatus.CANCELED)
        )
        steps: list[Step] = [
            (at, lambda: self.instance.add_backfill(requested)),
            (ends, lambda: self.instance.update_backfill(canceled)),
        ]
        return Planned(_fault("a backfill hangs for four hours", at, ends, "backfills"), steps)

    def _pull_is_partial(self, midnight: datetime) -> Planned:
        at, ends = midnight + 13 * HOUR, midnight + DAY + DAILY_AT
        why = "page 2 of 3 could not be pulled"
        steps: list[Step] = [
            (at, lambda: self.deliveries.news(at, why_incomplete=why)),
            (at, lambda: self.deliveries.merge(at)),
        ]
        return Planned(_fault("a pull is incomplete", at, ends, "partial"), steps)

    def _body_is_no_catalog(self, midnight: datetime) -> Planned:
        at, ends = midnight + 13 * HOUR, midnight + 15 * HOUR
        landed: list[str] = []
        steps: list[Step] = [
            (at, lambda: landed.append(self.deliveries.no_catalog(at))),
            (ends, lambda: self.deliveries.dismiss(landed[0])),
        ]
        return Planned(_fault("a body is no catalog", at, ends, "quarantined"), steps)

    def _merge_steps(self, at: datetime) -> list[Step]:
        return [(at, lambda: self.deliveries.merge(at)), (at, self._run_at(MERGE, at))]

    def _run_at(
        self, kind: str, at: datetime, *, day: datetime | None = None
    ) -> Callable[[], object]:
        part = None if day is None else day.date()
        return lambda: self.replay.run(self.templates[kind], at, part)


def _fault(
    name: str, begins: datetime, ends: datetime, kinds: str, over: datetime | None = None
) -> Fault:
    return Fault(name, begins, ends, frozenset(kinds.split()), over or ends + 2 * SOON)
