"""How often each window is looked at, so that changes are seen as young as a budget allows.

Belongs here: the division of a budget. Does not: how the calendar is cut (poll_windows.py), what is
due (poll_planner.py). The day's job looks at everything once; `turns` polls come between, evenly.
So a change is on average half of day / (turns + 1) old when it is seen, and the best number of
turns goes with sqrt(changes / price) (Cho and Garcia-Molina, 2003).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from typing import Final

CHANGES_PER_REQUEST_MIN: Final = 0.001
"""No look is planned that is expected to show less than this, for each request it costs."""
_STEPS: Final = 40


@dataclass(frozen=True, slots=True)
class Demand:
    """What a unit brings and costs: changes a day, and requests a turn.

    `core` is what one more look between two turns costs, at a part of the unit; it is in `price`,
    and the changes of that part, which wait half as long, count half.
    """

    changes_per_day: float
    price: int
    core: int = 0

    @property
    def in_turn(self) -> int:
        return 2 if self.core else 1

    def age(self, turns: int) -> float:
        """Return the sum of the ages at which a day's changes are seen, in days."""
        return self.changes_per_day / (2 * (turns + 1))

    def cost(self, turns: int) -> int:
        """Return the requests a day of so many turns beside the day's job."""
        return turns * self.price + self.core

    def most(self, looks_max: float) -> int:
        """Return how many turns a day are worth their price and within what is allowed."""
        worth = self.changes_per_day / (self.price * CHANGES_PER_REQUEST_MIN)
        return max(0, int(min(worth, (looks_max + 1) / self.in_turn)) - 1)


def turns_a_day(
    demands: Sequence[Demand], budget: float, looks_max: float
) -> tuple[int, ...] | None:
    """Return how many turns a day each unit gets, beside the look of the day's job.

    None means that not even that much is in the budget: a core is looked at between all the same.

    Args:
        demands: The units.
        budget: Requests a day; infinite is no limit.
        looks_max: What the least interval allows.
    """
    caps = [one.most(looks_max) for one in demands]
    if (
        any(one.core and looks_max < 1 for one in demands)
        or _cost(demands, [0] * len(caps)) > budget
    ):
        return None
    if _cost(demands, caps) <= budget:
        return tuple(caps)
    low, high = log(1e-12), log(1e6)
    turns = [0] * len(demands)
    for _ in range(_STEPS):
        worth = exp((low + high) / 2)
        tried = [_turns(one, worth, cap) for one, cap in zip(demands, caps, strict=True)]
        if _cost(demands, tried) <= budget:
            turns, high = tried, log(worth)
        else:
            low = log(worth)
    return tuple(_topped_up(demands, turns, caps, budget))


def _turns(demand: Demand, worth: float, cap: int) -> int:
    """Return the turns a day after which one more would save less than `worth` a request."""
    # age(n - 1) - age(n) = changes / (2 n (n + 1)) >= worth x price
    product = demand.changes_per_day / (2 * worth * demand.price)
    return min(cap, int((sqrt(1 + 4 * product) - 1) / 2))


def _topped_up(
    demands: Sequence[Demand], turns: list[int], caps: Sequence[int], budget: float
) -> list[int]:
    """Spend what whole numbers left over, one turn a unit, the most worth first."""
    left = budget - _cost(demands, turns)
    gains = [
        (one.age(now) - one.age(now + 1)) / one.price if now < cap else -inf
        for one, now, cap in zip(demands, turns, caps, strict=True)
    ]
    for at in sorted(range(len(demands)), key=lambda at: -gains[at]):
        if gains[at] > 0 and demands[at].price <= left:
            turns[at] += 1
            left -= demands[at].price
    return turns


def _cost(demands: Sequence[Demand], turns: Sequence[int]) -> int:
    return sum(one.cost(count) for count, one in zip(turns, demands, strict=True))
