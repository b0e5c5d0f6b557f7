"""A month of looks played against the truth: what they cost, and how old changes are when seen.

A policy says when it looks at what. A look at dates costs a request for each page begun; a look at
the cancellations, or at one event, costs one. The day's job looks at everything at 00:20 and is
paid apart. Ages are net of the service's own delay, in seconds.
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

Look = Span | str | None
"""A span of dates, both inclusive; the id of an event; or the cancellations."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a look told of an event: where it lies now, or that it is gone or not where it was."""

    event_id: str
    kind: Literal["changed", "revealed", "missing", "cancelled"]
    span: Span | None


class Policy(Protocol):
    """When to look at what."""

    def next_s(self) -> float:
        """Return when it looks next."""

    def due(self, at: float) -> Sequence[Look]:
        """Return what it looks at now."""

    def paid(self, at: float, look: Look, requests: int, shown: Sequence[Shown]) -> None:
        """Hear what a look cost and told."""

    def daily(self, at: float, requests: int, shown: Sequence[Shown]) -> None:
        """Hear what the day's job cost and told."""


@dataclass
class Played:
    """What a policy came to: requests of its polls, and the age of each change by distance."""

    requests: int = 0
    daily_requests: int = 0
    looks: list[tuple[float, Span | None]] = field(default_factory=list)
    """Every look at dates or cancellations, the day's among them."""
    ages: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def all_ages(self) -> list[float]:
        return [age for name in DISTANCES for age in self.ages.get(name, ())]

    def mean_age(self) -> float:
        ages = self.all_ages()
        return sum(ages) / len(ages)


@dataclass
class _Waiting:
    """The changes of one event that nobody has seen.

    `known` is where it is thought to lie, `span` where it lies or lay last; `since` says when each
    change came, and the date it is told by.
    """

    known: Span | None
    span: Span
    scheduled: bool
    cancelled: bool = False
    since: list[tuple[float, int]] = field(default_factory=list)


class Play:
    """A month under way: the truth as it is now, and what was not seen yet."""

    def __init__(self, month: TrueMonth) -> None:
        self.month = month
        self.spans = dict(month.spans)
        self.dates = Dates(self.spans.values())
        self.played = Played()
        self._waiting: dict[str, _Waiting] = {}
        self._step = 0
        self._today = 0
        self._revealed = -DATES

    def run(self, policy: Policy) -> Played:
        """Play the month to its end and to the look of the day after; return what came of it."""
        end, daily_at = self.month.ends_s, 0.0
        while daily_at <= end + DAILY_AT_S:
            at = policy.next_s()
            if at >= daily_at or at >= end:
                self._move_to(daily_at)
                self._daily(policy, daily_at)
                daily_at = daily_at + DAY_S if daily_at else DAILY_AT_S
                continue
            self._move_to(at)
            for look in policy.due(at):
                requests = self.price(look)
                self.played.requests += requests
                policy.paid(at, look, requests, self._look(at, look))
        return self.played

    def price(self, look: Look) -> int:
        """Return what a look costs; a span ends where the plan's list ends."""
        if not isinstance(look, tuple):
            return 1
        first, last = self.month.shown(self._today)
        return max(1, ceil(self.dates.rows(max(look[0], first), min(look[1], last)) / PAGE))

    def _daily(self, policy: Policy, at: float) -> None:
        everything = self.month.shown(self._today)
        requests = self.price(everything) + OTHER_DAILY
        shown = [*self._look(at, everything), *self._look(at, CANCELLATIONS)]
        if 0 < at < self.month.ends_s:
            self.played.daily_requests += requests
        policy.daily(at, requests, shown)

    def _move_to(self, at: float) -> None:
        steps = self.month.steps
        while self._step < len(steps) and steps[self._step].at <= at:
            self._turn_days(steps[self._step].at)
            self._apply(steps[self._step])
            self._step += 1
        self._turn_days(at)

    def _turn_days(self, at: float) -> None:
        """At midnight, what the plan shows no longer was never seen; it ages until then."""
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
            # Beyond what the plan shows; its changes age until it went there.
            self._count(step.at, waiting)
            waiting.since = []
        elif step.visible:
            waiting.since.append((step.at, waiting.span[0]))

    def _look(self, at: float, look: Look) -> list[Shown]:
        """Return what a look tells; the changes it shows have been seen."""
        if not isinstance(look, str):
            self.played.looks.append((at, look))
        shown = self._newly_shown(look) if isinstance(look, tuple) else []
        for event_id, waiting in list(self._waiting.items()):
            if _shows(look, event_id, waiting):
                self._count(at, self._waiting.pop(event_id))
                kind: Literal["changed", "missing", "cancelled"] = "changed"
                if not waiting.scheduled:
                    kind = "cancelled" if waiting.cancelled else "missing"
                shown.append(Shown(event_id, kind, waiting.span if waiting.scheduled else None))
            elif isinstance(look, tuple) and waiting.known and _overlap(waiting.known, look):
                waiting.known = None
                shown.append(Shown(event_id, "missing", None))
        return shown

    def _newly_shown(self, look: Span) -> list[Shown]:
        """Return the events on dates that came within the plan's horizon since the last look."""
        last = min(look[1], self.month.shown(self._today)[1])
        if last <= self._revealed:
            return []
        new = (max(self._revealed + 1, look[0]), last)
        self._revealed = last
        return [
            Shown(event_id, "revealed", span)
            for event_id, span in self.spans.items()
            if _overlap(span, new) and event_id not in self._waiting
        ]

    def _count(self, at: float, waiting: _Waiting) -> None:
        for since, date_ in waiting.since:
            if since < self.month.ends_s:
                self.played.ages[distance_name(date_ - int(since // DAY_S))].append(at - since)


def _shows(look: Look, event_id: str, waiting: _Waiting) -> bool:
    if look is CANCELLATIONS:
        return waiting.cancelled
    if isinstance(look, str):
        return look == event_id
    return not waiting.cancelled and _overlap(waiting.span, look)


def _overlap(span: Span, other: Span) -> bool:
    return span[0] <= other[1] and span[1] >= other[0]


def distance_name(days: int) -> str:
    if days < 0:
        return "past"
    return "0-7" if days <= 7 else "8-30" if days <= 30 else "31-90" if days <= 90 else "90+"
