"""Our planner as a policy: the production function, which knows only what its own pulls showed.

A new home: the rates start with the prior. The account of the month, the calendar of known
events, the last pull of each date and the missing events are kept as in a home.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta

from bench.polling.dates import Dates
from bench.polling.month import CANCELLATIONS, Pull, Shown
from bench.polling.truth import BACK, DAY_S, Span, TrueMonth
from pipeline.polling.planner import (
    CancellationsPull,
    EventsPull,
    Month,
    PlannerInputs,
    PollPlan,
    plan_polls,
)
from pipeline.polling.poll_windows import (
    BANDS,
    Calendar,
    ChangeCounts,
    ChangeRates,
    estimate_rates,
    find_band,
)

LEARN_EVERY_S = 6 * 3600
COUNT_EVERY_S = 1_800
"""How often a home counts its events again: merges are coalesced."""


@dataclass
class _Counts:
    """The changes seen by band of distance, and the time watched."""

    announced: list[float] = field(default_factory=lambda: [0.0] * len(BANDS))
    edited: list[float] = field(default_factory=lambda: [0.0] * len(BANDS))
    date_days: list[float] = field(default_factory=lambda: [0.0] * len(BANDS))
    event_days: list[float] = field(default_factory=lambda: [0.0] * len(BANDS))
    cancelled: float = 0.0
    days: float = 0.0

    def watched(self) -> ChangeCounts:
        return ChangeCounts(
            tuple(self.announced),
            tuple(self.edited),
            tuple(self.date_days),
            tuple(self.event_days),
            self.cancelled,
            self.days,
        )


class PlannerPolicy:
    """The planner with its home. `budget` is what its polls may spend in the month."""

    def __init__(
        self, month: TrueMonth, *, quota: int, reserve: int, cap: int | None, learns: bool = True
    ) -> None:
        self.month = month
        self.quota, self.reserve, self.cap, self.learns = quota, reserve, cap, learns
        self.ends = month.instant(month.ends_s)
        self.used, self.polled, self.daily_requests = 0, 0, 0
        self.spans: dict[str, Span] = {}
        self.dates = Dates()
        self.last_pulls: dict[date, datetime] = {}
        self.cancellations_at: datetime | None = None
        self.missing: list[str] = []
        self.look_ups = [0, 0]
        self.counts = _Counts()
        self.learned_at = 0.0
        self._calendar: Calendar | None = None
        self._stale, self._counted_at = False, 0.0
        self._rates: ChangeRates = estimate_rates(self.counts.watched())
        self._next_s = 0.0

    def next_s(self) -> float:
        return self._next_s

    def due(self, at: float) -> Sequence[Pull]:
        plan = self._plan(at)
        self._next_s = (plan.next_at - self.month.starts).total_seconds()
        pulls: list[Pull] = []
        for pull in plan.due:
            if isinstance(pull, EventsPull):
                last = pull.window.last
                end = self.month.shown(int(at // DAY_S))[1] if last is None else self._day(last)
                pulls.append((self._day(pull.window.first), end))
            elif isinstance(pull, CancellationsPull):
                pulls.append(CANCELLATIONS)
            else:
                pulls += pull.event_ids
        return pulls

    def paid(self, at: float, pull: Pull, requests: int, shown: Sequence[Shown]) -> None:
        self.used += requests
        self.polled += requests
        if isinstance(pull, str):
            self.missing = [event_id for event_id in self.missing if event_id != pull]
            self.look_ups = [int(at // DAY_S), self._look_ups_on(at) + 1]
        self._record(at, pull, shown)
        if self.used > self.quota - self.reserve:
            raise AssertionError(f"{self.used} of {self.quota} used, {self.reserve} to be kept")

    def daily(self, at: float, requests: int, shown: Sequence[Shown]) -> None:
        if at:
            self.used += requests
        self.daily_requests = requests
        self._record(at, self.month.shown(int(at // DAY_S)), shown)
        self.cancellations_at = self.month.instant(at)
        self._learn(at)
        self._calendar = None
        self._next_s = at if at < self.month.ends_s else self._next_s
        if at < self.month.ends_s:
            plan = self._plan(at)
            self._next_s = (plan.next_at - self.month.starts).total_seconds()

    def _plan(self, at: float) -> PollPlan:
        if at - self.learned_at >= LEARN_EVERY_S:
            self._learn(at)
        if self._calendar is None or (self._stale and at - self._counted_at >= COUNT_EVERY_S):
            self._calendar, self._stale, self._counted_at = self._counted(), False, at
        return plan_polls(
            PlannerInputs(
                plan=replace(self.month.plan, freshness_s=0),
                now=self.month.instant(at),
                month=Month(
                    self.quota,
                    self.used,
                    self.ends,
                    self.reserve,
                    None if self.cap is None else self.cap - self.polled,
                    self.daily_requests,
                ),
                calendar=self._calendar,
                last_pulls=self.last_pulls,
                cancellations_pulled_at=self.cancellations_at,
                rates=self._rates,
                missing=tuple(self.missing),
                looked_up_today=self._look_ups_on(at),
                least_interval=timedelta(0),
            )
        )

    def _record(self, at: float, pull: Pull, shown: Sequence[Shown]) -> None:
        now = self.month.instant(at)
        if pull is CANCELLATIONS:
            self.cancellations_at = now
        elif isinstance(pull, tuple):
            for day in range(pull[0], pull[1] + 1):
                self.last_pulls[self.month.date_of(day)] = now
        today = int(at // DAY_S)
        for change in shown:
            known = self.spans.pop(change.event_id, None)
            if known is not None:
                self.dates.add(known, -1)
            if change.span is not None:
                self.spans[change.event_id] = change.span
                self.dates.add(change.span, 1)
            self._stale = self._stale or known != change.span
            self._count_change(change, known, today)

    def _count_change(self, change: Shown, known: Span | None, today: int) -> None:
        confirms = self.month.plan.horizon_days is None
        if change.kind != "missing" and change.event_id in self.missing:
            self.missing.remove(change.event_id)
        if change.kind == "missing" and confirms and change.event_id not in self.missing:
            self.missing.append(change.event_id)
        elif change.kind == "cancelled":
            self.counts.cancelled += 1
        elif change.kind == "changed" and change.span is not None:
            counted = self.counts.announced if known is None else self.counts.edited
            counted[find_band(change.span[0] - today)] += 1

    def _learn(self, at: float) -> None:
        """Add the time watched since the last call, and estimate the rates again."""
        days, today = (at - self.learned_at) / DAY_S, int(at // DAY_S)
        self.learned_at = at
        first, last = self.month.shown(today)
        for day in range(first, last + 1):
            band = find_band(day - today)
            self.counts.date_days[band] += days
            self.counts.event_days[band] += days * self.dates.begins[day + BACK]
        self.counts.days += days
        if self.learns:
            self._rates = estimate_rates(self.counts.watched())

    def _counted(self) -> Calendar:
        def by_date(counts: Sequence[int]) -> dict[date, int]:
            found = ((at - BACK, count) for at, count in enumerate(counts) if count)
            return {self.month.date_of(day): count for day, count in found}

        return Calendar(by_date(self.dates.begins), by_date(self.dates.runs_on))

    def _day(self, day: date) -> int:
        return self.month.day_of(day)

    def _look_ups_on(self, at: float) -> int:
        day, count = self.look_ups
        return count if day == int(at // DAY_S) else 0
