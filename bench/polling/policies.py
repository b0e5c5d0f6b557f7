"""Policies of fixed windows and intervals, at the budget that the planner has.

One interval for everything, or two windows with an interval each: the best of a grid of edges and
ratios, found on the measured month itself. Edges are days from today; adjacent windows that are due
together are one list.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, inf

from bench.polling.ages import Probe, ages
from bench.polling.dates import mornings
from bench.polling.month import (
    CANCELLATIONS,
    DAILY_AT_S,
    PAGE,
    Pull,
    Shown,
    Simulation,
    SimulationResult,
)
from bench.polling.truth import DAY_S, Span, TrueMonth

RATIOS = (1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0)
EDGES = (1, 2, 3, 5, 7, 9, 11, 14, 17, 20, 25, 28, 31, 36, 45, 60, 75, 91, 120, 180, 365)
SIMULATED = 24
"""How many of the grid, the best by expected age, are simulated."""
ENOUGH = 0.995
_TRIES = 6


@dataclass(frozen=True, slots=True)
class Part:
    """A range of distances, or the cancellations, with its pull rate relative to the others."""

    span: Span | None
    pace: float


class Fixed:
    """Each part at its own interval, from the first daily job."""

    def __init__(self, month: TrueMonth, parts: Sequence[Part], interval_s: float) -> None:
        self.month, self.parts, self.interval_s = month, parts, interval_s
        self.counts = [1] * len(parts)

    def next_s(self) -> float:
        return min((self._at(number) for number in range(len(self.parts))), default=inf)

    def due(self, at: float) -> Sequence[Pull]:
        spans: list[Span] = []
        pulls: list[Pull] = []
        today = int(at // DAY_S)
        for number, part in enumerate(self.parts):
            if self._at(number) > at + 0.001:
                continue
            self.counts[number] += 1
            if part.span is None:
                pulls.append(CANCELLATIONS)
            else:
                spans.append((part.span[0] + today, part.span[1] + today))
        return [*pulls, *_touching(spans)]

    def paid(self, at: float, pull: Pull, requests: int, shown: Sequence[Shown]) -> None:
        pass

    def daily(self, at: float, requests: int, shown: Sequence[Shown]) -> None:
        pass

    def _at(self, number: int) -> float:
        return DAILY_AT_S + self.counts[number] * self.interval_s / self.parts[number].pace


def _touching(spans: Sequence[Span]) -> list[Span]:
    found: list[Span] = []
    for span in sorted(spans):
        if found and span[0] == found[-1][1] + 1:
            found[-1] = (found[-1][0], span[1])
        else:
            found.append(span)
    return found


def one_interval(month: TrueMonth, budget: int) -> SimulationResult:
    """Simulate one interval for everything."""
    parts = (Part(month.shown(0), 1.0), Part(None, 1.0))
    return _at_budget(month, parts, budget)


@dataclass(frozen=True, slots=True)
class Best:
    """The best of the grid: its label and its result."""

    label: str
    result: SimulationResult


def best_two_windows(month: TrueMonth, budget: int, found: Sequence[Probe]) -> Best:
    """Simulate the most promising of the grid; return the one with the youngest changes."""
    guess = _Guess(month, budget)
    ranked = sorted(_grid(month), key=lambda candidate: guess.age(candidate[1]))[:SIMULATED]
    result = [Best(label, _at_budget(month, parts, budget)) for label, parts in ranked]
    return min(result, key=lambda best: sum(ages(month, found, best.result.pulls)))


def _grid(month: TrueMonth) -> list[tuple[str, tuple[Part, ...]]]:
    first, last = month.shown(0)
    grid = []
    for edge, start, ratio, with_near in product(EDGES, (first, 0, 1), RATIOS, (True, False)):
        if not first <= start <= edge < last or (start == 1 and first == 1):
            continue
        near = Part((start, edge), ratio)
        rest = [Part((edge + 1, last), 1.0)]
        if start > first:
            rest.insert(0, Part((first, start - 1), 1.0))
        cancellations = Part(None, ratio if with_near else 1.0)
        label = f"{start} to {edge} days x {ratio}"
        grid.append((label, (near, *rest, cancellations)))
    return list(dict.fromkeys(grid))


def _at_budget(month: TrueMonth, parts: Sequence[Part], budget: int) -> SimulationResult:
    """Simulate the shortest interval, to half a percent, that the budget pays."""
    interval_s = 2_000.0
    best: SimulationResult | None = None
    for _ in range(_TRIES):
        result = Simulation(month).run(Fixed(month, parts, interval_s))
        if result.requests <= budget and (best is None or result.requests > best.requests):
            best = result
            if result.requests >= budget * ENOUGH:
                break
        interval_s *= result.requests / (budget * (1 - (1 - ENOUGH) / 4))
    if best is None:
        raise AssertionError(f"no interval found that {budget} requests pay")
    return best


class _Guess:
    """The expected age of a policy without a simulation: mean pages of days, half intervals."""

    def __init__(self, month: TrueMonth, budget: int) -> None:
        self.month = month
        self.per_day = budget / (month.ends_s / DAY_S)
        self.mornings = list(enumerate(mornings(month)))[::3]
        self.changes = _changes(month)
        self._known: dict[Span, tuple[float, float]] = {}

    def age(self, parts: Sequence[Part]) -> float:
        prices, rates = zip(*(self._priced(part) for part in parts), strict=True)
        cost = sum(price * part.pace for price, part in zip(prices, parts, strict=True))
        rounds = self.per_day / cost
        weighed = zip(rates, parts, strict=True)
        return float(sum(rate / (rounds * part.pace + 1) for rate, part in weighed))

    def _priced(self, part: Part) -> tuple[float, float]:
        if part.span is None:
            return 1.0, float(self.changes[None])
        if part.span not in self._known:
            low, high = part.span
            pages = [
                max(1, ceil(dates.rows(low + today, high + today) / PAGE))
                for today, dates in self.mornings
            ]
            rate = sum(
                count
                for distance, count in self.changes.items()
                if distance is not None and low <= distance <= high
            )
            self._known[part.span] = (sum(pages) / len(pages), float(rate))
        return self._known[part.span]


def _changes(month: TrueMonth) -> dict[int | None, int]:
    counts: dict[int | None, int] = defaultdict(int)
    for step in month.steps:
        if step.cancelled:
            counts[None] += 1
        elif step.visible and step.after is not None:
            counts[step.after[0] - int(step.at // DAY_S)] += 1
    return counts
