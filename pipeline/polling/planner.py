"""The poll planner: the windows, cancellations and missing events that are due now.

A pure function from inputs to a plan: no clock, no file, no request. The budget of the month is the
quota less the reserve and the daily jobs. It is spread evenly up to the reset, over windows that
fill their pages (poll_windows.py), so that changes are seen as early as possible.

The daily job starts at 00:20 and pulls everything once, and the polls of a day are spread evenly
between two daily jobs: the time between two pulls is 1 / (polls + 1) of a day. A change waits half
of that on average. The sum of these ages is least if the number of polls is proportional to
sqrt(changes / price) (Cho and Garcia-Molina, 2003). A unit is due when the mean time since the last
pull of its dates, weighted by their change rates, is its interval. The mean is over dates and not
over windows, so that a pull still counts when the cuts have moved.

Timestamps are UTC and aware; costs are in requests, rates per day.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from math import exp, floor, inf, log, sqrt
from typing import Final

from catalog.contract.plans import Plan
from pipeline.configuration import LEAST_POLL_INTERVAL_S
from pipeline.polling.poll_windows import (
    NO_CHANGE_COUNTS,
    Calendar,
    ChangeRates,
    Partitioning,
    WindowLoad,
    WindowPlan,
    cut_calendar,
    estimate_rates,
    join_loads,
)
from resources.ingest.scopes import PollWindow
from resources.limits.ledger import next_reset

DAILY_AT: Final = time(0, 20)
DAILY_DONE_BY: Final = time(1, 0)
"""By this time the daily job has sent its requests, or it was missed."""
MISSED_AFTER: Final = timedelta(minutes=40)
_AROUND: Final = timedelta(minutes=20)
"""A pull at most this long before the daily job replaces it."""
_DAY: Final = timedelta(days=1)


def next_time(of_day: time, after: datetime) -> datetime:
    """Return the first timestamp after another one with a given time of day."""
    found = datetime.combine(after.date(), of_day, tzinfo=after.tzinfo)
    return found if found > after else found + _DAY


def due_at(pulled_at: datetime, interval: timedelta, least: timedelta) -> datetime:
    """Return when the next pull is due: about an interval later, at least the least interval.

    The time until the daily job is divided evenly. If that gives one part, the job is the next
    pull, and a poll is due only if the job was missed.
    """
    ahead = next_time(DAILY_AT, pulled_at + _AROUND) - pulled_at
    parts = round(ahead / interval)
    if parts <= 1:
        return pulled_at + max(ahead + MISSED_AFTER, least)
    return pulled_at + max(ahead / parts, least)


@dataclass(frozen=True, slots=True)
class Month:
    """The quota of the month. Polls never use `reserve`; `cap` limits what they may still use.

    `daily_requests` is the cost of one daily job.
    """

    quota: int | None
    used: int
    resets_at: datetime
    reserve: int = 0
    cap: int | None = None
    daily_requests: int = 0

    def at(self, now: datetime) -> "Month":
        """Return the month of `now`: after the reset, a new one with nothing used."""
        if now < self.resets_at:
            return self
        return replace(self, used=0, cap=None, resets_at=next_reset(now))

    def days_left(self, now: datetime) -> float:
        return (self.resets_at - now) / _DAY

    def for_daily(self, now: datetime) -> int:
        """Return the requests of the daily jobs until the reset."""
        runs = max(0, -((next_time(DAILY_DONE_BY, now) - self.resets_at) // _DAY))
        return runs * self.daily_requests

    def for_polls(self, now: datetime) -> float:
        """Return the requests that polls may send until the reset, at least 0; inf for no limit."""
        bounds = [] if self.cap is None else [self.cap]
        if self.quota is not None:
            bounds.append(self.quota - self.used - self.reserve - self.for_daily(now))
        return max(0, min(bounds)) if bounds else inf


@dataclass(frozen=True, slots=True)
class ReceivedPush:
    """The receipt of the newest delivery, and its effect on polls.

    Push is on until `silent_after` has passed without a delivery. Until then, polls of the same
    dates are at least `poll_interval` apart.
    """

    last_at: datetime
    silent_after: timedelta
    poll_interval: timedelta

    def is_on(self, now: datetime) -> bool:
        return now - self.last_at <= self.silent_after


@dataclass(frozen=True, slots=True)
class PlannerInputs:
    """The inputs of a plan.

    `last_pulls` has the last pull of each event date, by a poll or the daily job; `missing` are
    the ids absent from a complete pull and not confirmed, oldest first; `looked_up_today` counts
    the look-ups of today; `push` is None if no delivery was ever received.
    """

    plan: Plan
    now: datetime
    month: Month
    calendar: Calendar
    last_pulls: Mapping[date, datetime]
    cancellations_pulled_at: datetime | None = None
    rates: ChangeRates = field(default_factory=lambda: estimate_rates(NO_CHANGE_COUNTS))
    missing: Sequence[str] = ()
    looked_up_today: int = 0
    push: ReceivedPush | None = None
    least_interval: timedelta = timedelta(seconds=LEAST_POLL_INTERVAL_S)

    def least(self) -> timedelta:
        """Return the interval below which a pull shows nothing new, or is not wanted."""
        least = max(self.least_interval, timedelta(seconds=self.plan.freshness_s))
        if self.push is not None and self.push_is_on:
            return max(least, self.push.poll_interval)
        return least

    @property
    def push_is_on(self) -> bool:
        """Whether push brings the changes, so that polls only look for the rest."""
        return self.plan.webhooks and self.push is not None and self.push.is_on(self.now)

    @property
    def push_is_silent(self) -> bool:
        """Whether push brought changes before, and has not for too long."""
        return self.plan.webhooks and self.push is not None and not self.push.is_on(self.now)


@dataclass(frozen=True, slots=True)
class EventsPull:
    """A complete pull of a window of event dates, and its expected cost."""

    window: PollWindow
    requests: int


@dataclass(frozen=True, slots=True)
class CancellationsPull:
    """The cancellations since a time; None is as far back as the service lists them."""

    since: datetime | None
    requests: int = 1


@dataclass(frozen=True, slots=True)
class LookUps:
    """Single look-ups of missing events."""

    event_ids: tuple[str, ...]

    @property
    def requests(self) -> int:
        return len(self.event_ids)


Pull = EventsPull | CancellationsPull | LookUps


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A row of the schedule, for people: `window` None is the cancellations."""

    window: PollWindow | None
    interval: timedelta
    requests_per_day: float
    changes_per_day: float
    why: str

    @property
    def unit(self) -> str:
        return "cancellations" if self.window is None else str(self.window)


@dataclass(frozen=True, slots=True)
class PollPlan:
    """The due pulls, the next due time, and the division of the budget.

    `next_at` assumes that due pulls are done. `per_day` is the planned requests of polls;
    `projected_at_reset` is the month's use including them and the daily jobs; `spare` is the rest
    of the quota beside the reserve. Both are None without a quota.
    """

    due: tuple[Pull, ...]
    next_at: datetime
    schedule: tuple[ScheduleRow, ...]
    per_day: float
    projected_at_reset: int | None
    spare: int | None


CHANGES_PER_REQUEST_MIN: Final = 0.001
"""A poll must be expected to show at least this many changes for each request."""
_STEPS: Final = 40


@dataclass(frozen=True, slots=True)
class PollDemand:
    """The benefit and cost of a unit: changes a day, and requests for each poll.

    `core` is the requests of an additional pull of a part of the unit between two polls. `price`
    includes it; the changes of that part count half, since they wait half as long.
    """

    changes_per_day: float
    price: int
    core: int = 0

    @property
    def pulls_per_poll(self) -> int:
        return 2 if self.core else 1

    def age(self, polls: int) -> float:
        """Return the sum of the ages of a day's changes when they are seen, in days."""
        return self.changes_per_day / (2 * (polls + 1))

    def cost(self, polls: int) -> int:
        """Return the requests a day for a number of polls beside the daily job."""
        return polls * self.price + self.core

    def polls_max(self, pulls_max: float) -> int:
        """Return the most polls a day that are worth their price and allowed."""
        worth = self.changes_per_day / (self.price * CHANGES_PER_REQUEST_MIN)
        return max(0, int(min(worth, (pulls_max + 1) / self.pulls_per_poll)) - 1)


def polls_per_day(
    demands: Sequence[PollDemand], budget: float, pulls_max: float
) -> tuple[int, ...] | None:
    """Return the polls a day of each unit, beside the daily job.

    None means that not even zero polls are possible, since cores are still pulled once.

    Args:
        demands: The units.
        budget: Requests a day; infinite means no limit.
        pulls_max: The pulls a day that the least interval allows.
    """
    caps = [demand.polls_max(pulls_max) for demand in demands]
    if (
        any(demand.core and pulls_max < 1 for demand in demands)
        or _cost(demands, [0] * len(caps)) > budget
    ):
        return None
    if _cost(demands, caps) <= budget:
        return tuple(caps)
    low, high = log(1e-12), log(1e6)
    polls = [0] * len(demands)
    for _ in range(_STEPS):
        worth = exp((low + high) / 2)
        tried = [_polls(demand, worth, cap) for demand, cap in zip(demands, caps, strict=True)]
        if _cost(demands, tried) <= budget:
            polls, high = tried, log(worth)
        else:
            low = log(worth)
    return tuple(_topped_up(demands, polls, caps, budget))


def _polls(demand: PollDemand, worth: float, cap: int) -> int:
    """Return the polls a day after which one more would save less than `worth` for each request."""
    # age(n - 1) - age(n) = changes / (2 n (n + 1)) >= worth x price
    product = demand.changes_per_day / (2 * worth * demand.price)
    return min(cap, int((sqrt(1 + 4 * product) - 1) / 2))


def _topped_up(
    demands: Sequence[PollDemand], polls: list[int], caps: Sequence[int], budget: float
) -> list[int]:
    """Spend the budget left by rounding: at most one more poll for a unit, the best unit first."""
    left = budget - _cost(demands, polls)
    gains = [
        (demand.age(now) - demand.age(now + 1)) / demand.price if now < cap else -inf
        for demand, now, cap in zip(demands, polls, caps, strict=True)
    ]
    for at in sorted(range(len(demands)), key=lambda at: -gains[at]):
        if gains[at] > 0 and demands[at].price <= left:
            polls[at] += 1
            left -= demands[at].price
    return polls


def _cost(demands: Sequence[PollDemand], polls: Sequence[int]) -> int:
    return sum(demand.cost(count) for count, demand in zip(polls, demands, strict=True))


NEVER: Final = timedelta(days=2)
"""The assumed age of the last pull of a date without a known pull."""
TOGETHER: Final = 0.15
"""How early, as a share of its interval, a window is pulled along with its core."""
Dated = tuple[tuple[date, float], ...]
"""Dates with the expected changes a day of each."""


@dataclass(frozen=True, slots=True)
class PollUnit:
    """A part of the calendar, or the cancellations (None), with its polls and due times."""

    window_plan: WindowPlan | None
    demand: PollDemand
    polls: int
    interval: timedelta
    least: timedelta
    whole_at: datetime
    core_at: datetime

    @property
    def due_at(self) -> datetime:
        return min(self.whole_at, self.core_at)

    def due(self, now: datetime) -> WindowLoad | None:
        """Return the due part: the whole is pulled along with its core if it is nearly due."""
        if self.window_plan is None or now < self.due_at:
            return None
        whole = now >= self.whole_at - self.interval * TOGETHER
        return (
            self.window_plan.whole
            if whole or self.window_plan.core is None
            else self.window_plan.core
        )

    def next_at(self, now: datetime) -> datetime:
        """Return the next due time after the pulls that are due now."""
        if now < self.due_at:
            return self.due_at
        next_whole_at = due_at(now, self.interval, self.least)
        if self.window_plan is None or self.window_plan.core is None:
            return next_whole_at
        whole_at = next_whole_at if self.due(now) is self.window_plan.whole else self.whole_at
        return min(whole_at, due_at(now, self.interval / 2, self.least))


def make_unit(window_plan: WindowPlan | None, polls: int, inputs: PlannerInputs) -> PollUnit:
    interval, least = _DAY / (polls + 1), inputs.least()
    if window_plan is None:
        demand = PollDemand(inputs.rates.cancelled, 1)
        pulled_at = inputs.cancellations_pulled_at or inputs.now - NEVER
        next_at = due_at(pulled_at, interval, least)
        return PollUnit(None, demand, polls, interval, least, next_at, next_at)
    core = () if window_plan.core is None else window_plan.core.dates
    around = _without(window_plan.whole.dates, core) if core else window_plan.whole.dates
    whole_at = due_at(_pulled_at(around, inputs), interval, least)
    core_at = due_at(_pulled_at(core, inputs), interval / 2, least) if core else whole_at
    return PollUnit(
        window_plan, measure_demand(window_plan), polls, interval, least, whole_at, core_at
    )


def measure_demand(window_plan: WindowPlan) -> PollDemand:
    changes, core = window_plan.whole.changes_per_day, window_plan.core
    if core is None:
        return PollDemand(changes, window_plan.whole.pages)
    price = window_plan.whole.pages + core.pages
    return PollDemand(changes - core.changes_per_day / 2, price, core.pages)


def _without(dates: Dated, core: Dated) -> Dated:
    first, last = core[0][0], core[-1][0]
    return tuple(date for date in dates if not first <= date[0] <= last)


def _pulled_at(dates: Dated, inputs: PlannerInputs) -> datetime:
    """Return the mean time of the last pulls of dates, weighted by their change rate."""
    never = inputs.now - NEVER
    weight, waited_s = 0.0, 0.0
    for day, changes in dates:
        last = max(inputs.last_pulls.get(day, never), never)
        weight += changes
        waited_s += changes * (inputs.now - last).total_seconds()
    return inputs.now - timedelta(seconds=waited_s / weight) if weight else never


def trim_fresh_edges(load: WindowLoad, inputs: PlannerInputs) -> WindowLoad:
    """Return a window without the dates at its edges that were pulled within the least interval.

    A window with moved edges may include dates that a pull of its neighbour has just shown.
    """
    since = inputs.now - inputs.least()
    stale = [
        at for at, (day, _) in enumerate(load.dates) if inputs.last_pulls.get(day, since) <= since
    ]
    if not stale:
        return load
    last = len(load.dates) - 1 if load.window.last is None else stale[-1]
    if (stale[0], last) == (0, len(load.dates) - 1):
        return load
    dates = load.dates[stale[0] : last + 1]
    end = None if load.window.last is None else dates[-1][0]
    return WindowLoad(PollWindow(dates[0][0], end), load.rows, dates)


PAST_DAYS: Final = 30
"""How far back polls pull at most; older events change too rarely."""
LOOK_UP_SHARE: Final = 0.03
"""The share of a day's budget for look-ups of missing events."""
SINCE_MARGIN: Final = timedelta(minutes=5)
"""The overlap of two pulls of cancellations, beside the service's own delay."""
NO_WORSE: Final = 1.001
"""Ages up to this factor count as equal; then the cheaper schedule is used."""
BUDGET_STEP: Final = 0.005
CUT_STEP: Final = 0.25
"""Budgets this close to each other, as a share, have one schedule and one way to cut."""


def plan_polls(inputs: PlannerInputs) -> PollPlan:
    """Return the pulls that are due now, and the schedule."""
    now, month = inputs.now, inputs.month.at(inputs.now)
    budget, days = month.for_polls(now), month.days_left(now)
    look_ups = _look_ups(inputs, budget, days)
    budget -= look_ups.requests
    units = _units(inputs, budget / days)
    due = _affordable(units, inputs, budget)
    per_day = float(sum(unit.demand.cost(unit.polls) for unit in units))
    projected = month.used + month.for_daily(now) + look_ups.requests
    projected += floor(min(budget, per_day * days))
    quota, next_at = month.quota, min(unit.next_at(now) for unit in units)
    return PollPlan(
        due=(*((look_ups,) if look_ups.requests else ()), *due),
        next_at=month.resets_at if budget < 1 else min(next_at, month.resets_at),
        schedule=tuple(row for unit in units for row in _rows(unit, inputs, budget)),
        per_day=per_day,
        projected_at_reset=None if quota is None else projected,
        spare=None if quota is None else max(0, quota - month.reserve - projected),
    )


def _look_ups(inputs: PlannerInputs, budget: float, days: float) -> LookUps:
    """Return the look-ups; none on a plan with a horizon, where a 404 proves nothing."""
    if inputs.plan.horizon_days is not None or budget < 1:
        return LookUps(())
    share = max(1.0, min(LOOK_UP_SHARE * budget / max(days, 1.0), 1e6)) - inputs.looked_up_today
    count = int(max(0.0, min(share, budget)))
    return LookUps(tuple(inputs.missing[:count]))


def _units(inputs: PlannerInputs, per_day: float) -> list[PollUnit]:
    partitioning, polls = _schedule(
        inputs.calendar,
        inputs.rates,
        _polled(inputs),
        inputs.now.date(),
        _rounded(per_day, BUDGET_STEP),
        _a_day(inputs.least()) - 1,
    )
    return [make_unit(*pair, inputs) for pair in zip((*partitioning, None), polls, strict=True)]


@lru_cache(maxsize=8)
def _schedule(
    calendar: Calendar,
    rates: ChangeRates,
    shown: PollWindow,
    today: date,
    per_day: float,
    pulls_max: float,
) -> tuple[Partitioning, tuple[int, ...]]:
    """Return the best way to cut, and the polls a day of each part; the cancellations are last."""
    tried = []
    for partitioning in cut_calendar(calendar, rates, shown, today, _rounded(per_day, CUT_STEP)):
        demands = [*map(measure_demand, partitioning), PollDemand(rates.cancelled, 1)]
        polls = polls_per_day(demands, per_day, pulls_max)
        if polls is not None:
            pairs = list(zip(demands, polls, strict=True))
            age = sum(pair.age(count) for pair, count in pairs)
            tried.append(
                (age, sum(trial.cost(count) for trial, count in pairs), partitioning, polls)
            )
    least = min(age for age, *_ in tried)
    _, _, partitioning, polls = min(
        (trial for trial in tried if trial[0] <= least * NO_WORSE), key=lambda trial: trial[1]
    )
    return partitioning, polls


def _polled(inputs: PlannerInputs) -> PollWindow:
    """Return the event dates that polls cover: all that the plan shows, without the far past."""
    today, plan = inputs.now.date(), inputs.plan
    past = PAST_DAYS if plan.past_days is None else min(plan.past_days, PAST_DAYS)
    horizon = plan.horizon_days
    return PollWindow(
        today - timedelta(days=past), None if horizon is None else today + timedelta(days=horizon)
    )


def _affordable(units: Sequence[PollUnit], inputs: PlannerInputs, budget: float) -> list[Pull]:
    """Return the due pulls that the budget allows; neighbouring windows become one pull."""
    now = inputs.now
    due = [trim_fresh_edges(load, inputs) for unit in units if (load := unit.due(now)) is not None]
    pulls: list[Pull] = []
    if units[-1].due_at <= now:
        pulls.append(CancellationsPull(_since(inputs)))
    for at, load in enumerate(due):
        if at and due[at - 1].window.last == load.window.first - _DAY:
            load = due[at] = join_loads(due[at - 1], load)
            pulls.pop()
        pulls.append(EventsPull(load.window, load.pages))
    paid: list[Pull] = []
    for pull in pulls:
        # A window may have grown by a page since it was counted.
        cost = pull.requests + (1 if isinstance(pull, EventsPull) else 0)
        if cost <= budget:
            paid.append(pull)
            budget -= cost
    return paid


def _since(inputs: PlannerInputs) -> datetime | None:
    pulled_at = inputs.cancellations_pulled_at
    if pulled_at is None:
        return None
    return pulled_at - timedelta(seconds=inputs.plan.freshness_s) - SINCE_MARGIN


def _rows(unit: PollUnit, inputs: PlannerInputs, budget: float) -> list[ScheduleRow]:
    """Return a row for the unit, and before it one for its core."""
    demand, polls, why = unit.demand, unit.polls, _why(unit, inputs, budget)
    if unit.window_plan is None:
        return [ScheduleRow(None, unit.interval, float(polls), demand.changes_per_day, why)]
    whole, core = unit.window_plan.whole, unit.window_plan.core
    own = ScheduleRow(
        whole.window, unit.interval, float(polls * whole.pages), whole.changes_per_day, why
    )
    if core is None:
        return [own]
    between = float((polls + 1) * core.pages)
    reason = "changes most: pulled once more between two pulls of the dates around it"
    return [ScheduleRow(core.window, unit.interval / 2, between, core.changes_per_day, reason), own]


def _why(unit: PollUnit, inputs: PlannerInputs, budget: float) -> str:
    if budget < 1:
        return "nothing left for polls until the reset"
    if inputs.push_is_on:
        rest = "polls find" if unit.polls else "the daily job finds"
        return f"push brings the changes; {rest} what it does not, such as withdrawals"
    if inputs.push_is_silent:
        return f"push is silent; {_why_without_push(unit, inputs)}"
    return _why_without_push(unit, inputs)


def _why_without_push(unit: PollUnit, inputs: PlannerInputs) -> str:
    demand, a_day = unit.demand, _a_day(inputs.least())
    if a_day < 2:
        return "the service shows changes a day late; the daily job is enough"
    if unit.polls >= demand.polls_max(a_day - 1):
        reason = (
            "as often as allowed" if unit.interval <= inputs.least() * 2.2 else "as often as useful"
        )
    else:
        reason = "as the budget allows" if unit.polls else "left to the daily job"
    requests = f"{demand.price} request{'s' if demand.price > 1 else ''} a pull"
    return f"{reason}: {demand.changes_per_day:.1f} changes a day, {requests}"


def _a_day(interval: timedelta) -> float:
    return _DAY / interval if interval else inf


def _rounded(per_day: float, step: float) -> float:
    """Return a budget rounded down, so that similar budgets have one schedule."""
    if per_day <= 0 or per_day == inf:
        return max(0.0, per_day)
    return exp(floor(log(per_day) / step) * step)
