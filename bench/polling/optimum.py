"""The optimum for the true rates of change: two policies from the literature, with hindsight.

Cho and Garcia-Molina, "Effective page refresh policies for web crawlers" (TODS 2003), for age:
each unit at even intervals, in proportion to sqrt(changes / price). Azar et al., "Tractable
near-optimal policies for crawling" (PNAS 2018): the visits of a unit are worth
visits / (visits + changes); the best rates of a random policy, then evened out in time.
A unit is a window that fills one page, or one of the best cut. At every morning these see the true
catalog and the true rates of the month; the daily job counts as their first visit of the day.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, sqrt

from bench.polling.cuts import Unit, best_cut, by_page
from bench.polling.dates import Dates, mornings
from bench.polling.month import CANCELLATIONS, DAILY_AT_S, Pull, Shown, Simulation, SimulationResult
from bench.polling.truth import BACK, DAY_S, Span, TrueMonth
from pipeline.polling.poll_windows import BANDS, ChangeRates, find_band

_STEPS = 60


Cut = Callable[[Dates, ChangeRates, Span, int], list[Unit]]
Visits = Callable[[Unit, float], float]
"""The visits a day of a unit when a request is worth so much."""


def for_age(unit: Unit, worth: float) -> float:
    """Return the visits by Cho and Garcia-Molina for age: changes / 2 visits^2 = worth x price."""
    return sqrt(unit.changes / (2 * worth * unit.price))


def for_freshness(unit: Unit, worth: float) -> float:
    """Return the visits by Azar et al., with every page of the list requested alike."""
    return max(0.0, sqrt(unit.price * unit.changes / (worth * unit.price)) - unit.changes)


def true_rates(month: TrueMonth) -> ChangeRates:
    """Return the true rates of a month, by band of distance."""
    announced, edited = [0.0] * len(BANDS), [0.0] * len(BANDS)
    dates, events = [0.0] * len(BANDS), [0.0] * len(BANDS)
    cancelled = 0
    now, step, days = Dates(month.spans.values()), 0, int(month.ends_s // DAY_S)
    for today in range(days):
        for day in range(month.shown(today)[0], month.shown(today)[1] + 1):
            dates[find_band(day - today)] += 1
            events[find_band(day - today)] += now.begins[day + BACK]
        while step < len(month.steps) and month.steps[step].at < (today + 1) * DAY_S:
            step_ = month.steps[step]
            step += 1
            if step_.before is not None:
                now.add(step_.before, -1)
            if step_.after is not None:
                now.add(step_.after, 1)
            cancelled += step_.cancelled
            if step_.visible and step_.after is not None:
                (announced if step_.fresh else edited)[find_band(step_.after[0] - today)] += 1
    return ChangeRates(
        tuple(_ratio(*counts) for counts in zip(announced, dates, strict=True)),
        tuple(_ratio(*counts) for counts in zip(edited, events, strict=True)),
        cancelled / days,
    )


def optimum(month: TrueMonth, budget: int) -> dict[str, SimulationResult]:
    """Simulate both policies on both kinds of unit; return each by name."""
    rates = true_rates(month)
    return {
        f"{author}, {name}": Simulation(month).run(Visited(month, budget, rates, visits, cut))
        for name, cut in (("by page", by_page), ("best cut", best_cut))
        for author, visits in (("Cho, Garcia-Molina", for_age), ("Azar et al.", for_freshness))
    }


class Visited:
    """Pulls at even times between two daily jobs; fractions of a visit wait for a day."""

    def __init__(
        self, month: TrueMonth, budget: int, rates: ChangeRates, visits: Visits, cut: Cut
    ) -> None:
        self.month, self.budget, self.rates = month, budget, rates
        self.mornings = mornings(month)
        self.visits, self.cut = visits, cut
        self.times: list[tuple[float, Pull]] = []
        self.over: dict[int, float] = {}
        self.polled = 0

    def next_s(self) -> float:
        return self.times[-1][0] if self.times else inf

    def due(self, at: float) -> Sequence[Pull]:
        return [self.times.pop()[1]]

    def paid(self, at: float, pull: Pull, requests: int, shown: Sequence[Shown]) -> None:
        self.polled += requests

    def daily(self, at: float, requests: int, shown: Sequence[Shown]) -> None:
        self.times.clear()
        if not DAILY_AT_S <= at < self.month.ends_s:
            return
        days = (self.month.ends_s - at) / DAY_S
        units = self._units(int(at // DAY_S))
        each = _visits_at(units, self.visits, (self.budget - self.polled) / days)
        for number, (unit, wanted) in enumerate(zip(units, each, strict=True)):
            exact = wanted - 1 + self.over.get(number, 0.0)
            count = int(exact)
            self.over[number] = exact - count
            gap = DAY_S / (count + 1)
            self.times += [(at + visit * gap, unit.pull) for visit in range(1, count + 1)]
        self.times.sort(key=lambda entry: -entry[0])

    def _units(self, today: int) -> list[Unit]:
        dates, shown = self.mornings[today], self.month.shown(today)
        units = self.cut(dates, self.rates, shown, today)
        end = shown[1]
        # The last window is requested without an end.
        last = units[-1]
        if last.pull is not None:
            units[-1] = replace(last, pull=(last.pull[0], end))
        return [*units, Unit(CANCELLATIONS, 1, self.rates.cancelled)]


def _visits_at(units: Sequence[Unit], visits: Visits, polls: float) -> list[float]:
    """Return the visits a day of each unit that `polls` requests pay, at least the daily job."""
    low, high = 1e-9, 1e6
    found = [1.0] * len(units)
    for _ in range(_STEPS):
        worth = sqrt(low * high)
        tried = [max(1.0, visits(unit, worth)) for unit in units]
        spent = sum((count - 1) * unit.price for count, unit in zip(tried, units, strict=True))
        if spent <= polls:
            found, high = tried, worth
        else:
            low = worth
    return found


def _ratio(changes: float, exposure: float) -> float:
    return changes / exposure if exposure else 0.0
