"""The poll interval of each part of the calendar, and its due time, within a budget.

Belongs here: dividing a budget. Does not: how the calendar is cut (windows), what is due now
(planner). The daily job pulls everything once, and the polls of a day are spread evenly between two
daily jobs: the time between two pulls is 1 / (polls + 1) of a day. A change waits half of that on
average until it is seen. The sum of these ages is least if the number of polls is proportional to
sqrt(changes / price) (Cho and Garcia-Molina, 2003). A unit is due when the mean time since the last
pull of its dates, weighted by their change rates, is its interval; the mean is over dates and not
over windows, so that a pull still counts when the cuts have moved.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from math import exp, inf, log, sqrt
from typing import Final

from pipeline.polling.plan import PlannerInputs, due_at
from pipeline.polling.windows import WindowLoad, WindowPlan
from resources.ingest.scopes import PollWindow

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
_DAY: Final = timedelta(days=1)
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


def unit_of(window_plan: WindowPlan | None, polls: int, inputs: PlannerInputs) -> PollUnit:
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
    return PollUnit(window_plan, demand_of(window_plan), polls, interval, least, whole_at, core_at)


def demand_of(window_plan: WindowPlan) -> PollDemand:
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


def without_fresh_edges(load: WindowLoad, inputs: PlannerInputs) -> WindowLoad:
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
