"""Ways to divide the calendar into windows for the optimum: true counts, every edge tried.

Separate from the planner's code, so that neither checks itself.
"""

from dataclasses import dataclass
from itertools import accumulate
from math import ceil, sqrt

from bench.polling.dates import Dates
from bench.polling.month import PAGE
from bench.polling.truth import BACK, Span
from pipeline.polling.poll_windows import ChangeRates

_FURTHEST = 800
"""Days from today after which there is no event."""
_ROOM = 6
"""Rows that a window may gain until the next morning. Without them the optimum is far worse."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A window, or the cancellations (None), with its price a visit and its changes a day."""

    pull: Span | None
    price: int
    changes: float


def by_page(dates: Dates, rates: ChangeRates, shown: Span, today: int) -> list[Unit]:
    """Return windows that each fill one page, from the first date, as far as dates allow."""
    first, last, units = shown[0], min(shown[1], today + _FURTHEST), []
    while first <= last:
        end = first
        while end < last and dates.rows(first, end + 1) + _ROOM <= PAGE:
            end += 1
        units.append(_unit(dates, rates, (first, end), today))
        first = end + 1
    return units


def best_cut(dates: Dates, rates: ChangeRates, shown: Span, today: int) -> list[Unit]:
    """Return the windows with the least sum of sqrt(price x changes) of all divisions."""
    first, last = shown[0], min(shown[1], today + _FURTHEST)
    count = last - first + 1
    begins = dates.begins[first + BACK : last + BACK + 1]
    runs_on = dates.runs_on[first + BACK : last + BACK + 1]
    rows = list(accumulate(begins, initial=0))
    changes = list(
        accumulate(
            (rates.on_date(first + at - today, begins[at]) for at in range(count)), initial=0.0
        )
    )
    best, edge = [0.0] * (count + 1), [0] * (count + 1)
    for stop in range(1, count + 1):
        sums = [
            best[start]
            + sqrt(
                max(1, -((rows[start] - rows[stop] - runs_on[start] - _ROOM) // PAGE))
                * (changes[stop] - changes[start])
            )
            for start in range(stop)
        ]
        best[stop] = min(sums)
        edge[stop] = sums.index(best[stop])
    units, stop = [], count
    while stop:
        span = (first + edge[stop], first + stop - 1)
        units.append(_unit(dates, rates, span, today))
        stop = edge[stop]
    return units[::-1]


def _unit(dates: Dates, rates: ChangeRates, span: Span, today: int) -> Unit:
    changes = sum(
        rates.on_date(day - today, dates.begins[day + BACK]) for day in range(span[0], span[1] + 1)
    )
    return Unit(span, max(1, ceil((dates.rows(*span) + _ROOM) / PAGE)), changes)
