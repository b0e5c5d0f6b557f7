"""A simulated month of pulls against the truth: their price, and how old changes are when seen.

A policy decides when to pull what. A pull of dates costs a request for each page, even a partly
filled one; a pull of the cancellations, or of one event, costs one. The daily job pulls everything
at 00:20 and is paid separately. Ages are without the service's own delay, in seconds.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, Literal, Protocol

from bench.polling.dates import Dates
from bench.polling.truth import DATES, DAY_S, Span, Step, TrueMonth

PAGE: Final = 100
DAILY_AT_S: Final = 1_200
OTHER_DAILY: Final = 19
"""The day's coins (16), categories, usage and cancellations."""
DISTANCES: Final = ("past", "0-7", "8-30", "31-90", "90+")
CANCELLATIONS: Final = None

Pull = Span | str | None
"""A range of dates, both inclusive; the id of an event; or the cancellations."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a pull shows of an event: its dates, or that it is cancelled or missing."""

    event_id: str
    kind: Literal["changed", "revealed", "missing", "cancelled"]
    span: Span | None


class Policy(Protocol):
    """Decides when to pull what."""

    def next_s(self) -> float:
        """Return the time of the next pull."""

    def due(self, at: float) -> Sequence[Pull]:
        """Return the pulls that are due now."""

    def paid(self, at: float, pull: Pull, requests: int, shown: Sequence[Shown]) -> None:
        """Called with the price and the result of a pull."""

    def daily(self, at: float, requests: int, shown: Sequence[Shown]) -> None:
        """Called with the price and the result of the daily job."""


@dataclass
class SimulationResult:
    """The result of a policy: requests of its polls, and the age of each change by distance."""

    requests: int = 0
    daily_requests: int = 0
    pulls: list[tuple[float, Span | None]] = field(default_factory=list)
    """Every pull of dates or cancellations, with the daily ones."""
    ages: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def all_ages(self) -> list[float]:
        return [age for name in DISTANCES for age in self.ages.get(name, ())]

    def mean_age(self) -> float:
        ages = self.all_ages()
        return sum(ages) / len(ages)


@dataclass
class _Waiting:
    """The changes of one event that no pull has shown.

    `known` is the known dates, `span` the current or last dates; `since` has the time of each
    change, and the date that it counts for.
    """

    known: Span | None
    span: Span
    scheduled: bool
    cancelled: bool = False
    since: list[tuple[float, int]] = field(default_factory=list)


class Simulation:
    """A month in progress: the current truth, and the changes that were not seen yet."""

    def __init__(self, month: TrueMonth) -> None:
        self.month = month
        self.spans = dict(month.spans)
        self.dates = Dates(self.spans.values())
        self.result = SimulationResult()
        self._waiting: dict[str, _Waiting] = {}
        self._step = 0
        self._today = 0
        self._revealed = -DATES

    def run(self, policy: Policy) -> SimulationResult:
        """Simulate the month and the daily pull after it; return the result."""
        end, daily_at = self.month.ends_s, 0.0
        while daily_at <= end + DAILY_AT_S:
            at = policy.next_s()
            if at >= daily_at or at >= end:
                self._move_to(daily_at)
                self._daily(policy, daily_at)
                daily_at = daily_at + DAY_S if daily_at else DAILY_AT_S
                continue
            self._move_to(at)
            for pull in policy.due(at):
                requests = self.price(pull)
                self.result.requests += requests
                policy.paid(at, pull, requests, self._pull(at, pull))
        return self.result

    def price(self, pull: Pull) -> int:
        """Return the requests of a pull; a range ends where the plan's list ends."""
        if not isinstance(pull, tuple):
            return 1
        first, last = self.month.shown(self._today)
        return max(1, ceil(self.dates.rows(max(pull[0], first), min(pull[1], last)) / PAGE))

    def _daily(self, policy: Policy, at: float) -> None:
        everything = self.month.shown(self._today)
        requests = self.price(everything) + OTHER_DAILY
        shown = [*self._pull(at, everything), *self._pull(at, CANCELLATIONS)]
        if 0 < at < self.month.ends_s:
            self.result.daily_requests += requests
        policy.daily(at, requests, shown)

    def _move_to(self, at: float) -> None:
        steps = self.month.steps
        while self._step < len(steps) and steps[self._step].at <= at:
            self._pass_days(steps[self._step].at)
            self._apply(steps[self._step])
            self._step += 1
        self._pass_days(at)

    def _pass_days(self, at: float) -> None:
        """Count changes that left the plan's window unseen; they age until midnight."""
        while self._today < int(at // DAY_S):
            self._today += 1
            first, _ = self.month.shown(self._today)
            for event_id, waiting in list(self._waiting.items()):
                if not waiting.cancelled and waiting.span[1] < first:
                    self._count(self._today * DAY_S, self._waiting.pop(event_id))

    def _apply(self, step: Step) -> None:
        before = self.spans.pop(step.event_id, None)
        if before is not None:
            self.dates.add(before, -1)
        if step.after is not None:
            self.spans[step.event_id] = step.after
            self.dates.add(step.after, 1)
        shown, last = self.month.shown(self._today), step.after or before
        waiting = self._waiting.get(step.event_id)
        if waiting is None:
            if not step.visible or last is None:
                return
            waiting = self._waiting[step.event_id] = _Waiting(before, last, scheduled=True)
        waiting.span = last or waiting.span
        waiting.scheduled, waiting.cancelled = step.after is not None, step.cancelled
        if not _overlap(waiting.span, shown):
            # Outside the plan's window; its changes age until it left.
            self._count(step.at, waiting)
            waiting.since = []
        elif step.visible:
            waiting.since.append((step.at, waiting.span[0]))

    def _pull(self, at: float, pull: Pull) -> list[Shown]:
        """Return what a pull shows; those changes are seen from now on."""
        if not isinstance(pull, str):
            self.result.pulls.append((at, pull))
        shown = self._newly_visible(pull) if isinstance(pull, tuple) else []
        for event_id, waiting in list(self._waiting.items()):
            if _shows(pull, event_id, waiting):
                self._count(at, self._waiting.pop(event_id))
                kind: Literal["changed", "missing", "cancelled"] = "changed"
                if not waiting.scheduled:
                    kind = "cancelled" if waiting.cancelled else "missing"
                shown.append(Shown(event_id, kind, waiting.span if waiting.scheduled else None))
            elif isinstance(pull, tuple) and waiting.known and _overlap(waiting.known, pull):
                waiting.known = None
                shown.append(Shown(event_id, "missing", None))
        return shown

    def _newly_visible(self, pull: Span) -> list[Shown]:
        """Return the events on dates that entered the plan's horizon since the last pull."""
        last = min(pull[1], self.month.shown(self._today)[1])
        if last <= self._revealed:
            return []
        new = (max(self._revealed + 1, pull[0]), last)
        self._revealed = last
        return [
            Shown(event_id, "revealed", span)
            for event_id, span in self.spans.items()
            if _overlap(span, new) and event_id not in self._waiting
        ]

    def _count(self, at: float, waiting: _Waiting) -> None:
        for since, date_ in waiting.since:
            if since < self.month.ends_s:
                self.result.ages[distance_name(date_ - int(since // DAY_S))].append(at - since)


def _shows(pull: Pull, event_id: str, waiting: _Waiting) -> bool:
    if pull is CANCELLATIONS:
        return waiting.cancelled
    if isinstance(pull, str):
        return pull == event_id
    return not waiting.cancelled and _overlap(waiting.span, pull)


def _overlap(span: Span, other: Span) -> bool:
    return span[0] <= other[1] and span[1] >= other[0]


def distance_name(days: int) -> str:
    if days < 0:
        return "past"
    return "0-7" if days <= 7 else "8-30" if days <= 30 else "31-90" if days <= 90 else "90+"
