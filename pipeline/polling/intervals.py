"""How often each part of the calendar is polled, and when it is due, within a budget.

Belongs here: the division of a budget. Does not: how the calendar is cut (windows), what is due now
(planner). The day's job pulls everything once; `turns` polls come between, evenly. So a change is
on average half of day / (turns + 1) old when it is seen, and the best number of turns goes with
sqrt(changes / price) (Cho and Garcia-Molina, 2003). A unit is due when its dates, weighed by how
often they change, have waited for its interval: so a cut that moves its edges loses no pull.
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
"""No look is planned that is expected to show less than this, for each request it costs."""
_STEPS: Final = 40


@dataclass(frozen=True, slots=True)
class PollDemand:
    """What a unit brings and costs: changes a day, and requests a turn.

    `core` is what one more look between two turns costs, at a part of the unit; it is in `price`,
    and the changes of that part, which wait half as long, count half.
    """

    changes_per_day: float
    price: int
    core: int = 0

    @property
    def pulls_per_poll(self) -> int:
        return 2 if self.core else 1

    def age(self, polls: int) -> float:
        """Return the sum of the ages at which a day's changes are seen, in days."""
        return self.changes_per_day / (2 * (polls + 1))

    def cost(self, polls: int) -> int:
        """Return the requests a day of so many turns beside the day's job."""
        return polls * self.price + self.core

    def polls_max(self, pulls_max: float) -> int:
        """Return how many turns a day are worth their price and within what is allowed."""
        worth = self.changes_per_day / (self.price * CHANGES_PER_REQUEST_MIN)
        return max(0, int(min(worth, (pulls_max + 1) / self.pulls_per_poll)) - 1)


def polls_per_day(
    demands: Sequence[PollDemand], budget: float, pulls_max: float
) -> tuple[int, ...] | None:
    """Return how many turns a day each unit gets, beside the look of the day's job.

    None means that not even that much is in the budget: a core is looked at between all the same.

    Args:
        demands: The units.
        budget: Requests a day; infinite is no limit.
        looks_max: What the least interval allows.
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
    """Return the turns a day after which one more would save less than `worth` a request."""
    # age(n - 1) - age(n) = changes / (2 n (n + 1)) >= worth x price
    product = demand.changes_per_day / (2 * worth * demand.price)
    return min(cap, int((sqrt(1 + 4 * product) - 1) / 2))


def _topped_up(
    demands: Sequence[PollDemand], polls: list[int], caps: Sequence[int], budget: float
) -> list[int]:
    """Spend what whole numbers left over, one turn a unit, the most worth first."""
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
"""How long ago a date was looked at that no look is known of."""
TOGETHER: Final = 0.15
"""How early, as a share of its interval, a window is looked at along with its core."""
_DAY: Final = timedelta(days=1)
Dated = tuple[tuple[date, float], ...]
"""Dates with the changes a day expected on each."""


@dataclass(frozen=True, slots=True)
class PollUnit:
    """A cell of the calendar, or the cancellations (None), with its turns and what is due when."""

    cell: WindowPlan | None
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
        """Return what of a cell is due; the whole comes along with its core when nearly so."""
        if self.cell is None or now < self.due_at:
            return None
        whole = now >= self.whole_at - self.interval * TOGETHER
        return self.cell.whole if whole or self.cell.core is None else self.cell.core

    def next_at(self, now: datetime) -> datetime:
        """Return when something is due once what is due now is done."""
        if now < self.due_at:
            return self.due_at
        next_whole_at = due_at(now, self.interval, self.least)
        if self.cell is None or self.cell.core is None:
            return next_whole_at
        whole_at = next_whole_at if self.due(now) is self.cell.whole else self.whole_at
        return min(whole_at, due_at(now, self.interval / 2, self.least))


def unit_of(cell: WindowPlan | None, polls: int, inputs: PlannerInputs) -> PollUnit:
    interval, least = _DAY / (polls + 1), inputs.least()
    if cell is None:
        demand = PollDemand(inputs.rates.cancelled, 1)
        pulled_at = inputs.cancellations_pulled_at or inputs.now - NEVER
        next_at = due_at(pulled_at, interval, least)
        return PollUnit(None, demand, polls, interval, least, next_at, next_at)
    core = () if cell.core is None else cell.core.dates
    around = _without(cell.whole.dates, core) if core else cell.whole.dates
    whole_at = due_at(_pulled_at(around, inputs), interval, least)
    core_at = due_at(_pulled_at(core, inputs), interval / 2, least) if core else whole_at
    return PollUnit(cell, demand_of(cell), polls, interval, least, whole_at, core_at)


def demand_of(cell: WindowPlan) -> PollDemand:
    changes, core = cell.whole.changes_per_day, cell.core
    if core is None:
        return PollDemand(changes, cell.whole.pages)
    price = cell.whole.pages + core.pages
    return PollDemand(changes - core.changes_per_day / 2, price, core.pages)


def _without(dates: Dated, core: Dated) -> Dated:
    first, last = core[0][0], core[-1][0]
    return tuple(date for date in dates if not first <= date[0] <= last)


def _pulled_at(dates: Dated, inputs: PlannerInputs) -> datetime:
    """Return when dates were looked at last: the mean, each weighed by how often it changes."""
    never = inputs.now - NEVER
    weight, waited_s = 0.0, 0.0
    for day, changes in dates:
        last = max(inputs.last_pulls.get(day, never), never)
        weight += changes
        waited_s += changes * (inputs.now - last).total_seconds()
    return inputs.now - timedelta(seconds=waited_s / weight) if weight else never


def without_fresh_edges(run: WindowLoad, inputs: PlannerInputs) -> WindowLoad:
    """Return a run less the dates at its edges that were looked at within the least interval.

    A window whose edges moved may take in what its neighbour has just shown.
    """
    since = inputs.now - inputs.least()
    stale = [
        at for at, (day, _) in enumerate(run.dates) if inputs.last_pulls.get(day, since) <= since
    ]
    if not stale:
        return run
    last = len(run.dates) - 1 if run.window.last is None else stale[-1]
    if (stale[0], last) == (0, len(run.dates) - 1):
        return run
    dates = run.dates[stale[0] : last + 1]
    end = None if run.window.last is None else dates[-1][0]
    return WindowLoad(PollWindow(dates[0][0], end), run.rows, dates)
