"""How old a change is when it is seen, with little noise: every change at many instants of its day.

A month has few changes, and their position within an interval is chance. So each is also placed at
other instants up to twelve hours before and after, on the same dates, and aged until the first
pull that covers them. No pull depends on these.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from bench.polling.truth import BACK, DATES, DAY_S, Span, TrueMonth

INSTANTS: Final = 24
AROUND_S: Final = DAY_S / 2
TimedPull = tuple[float, Span | None]


@dataclass(frozen=True, slots=True)
class Probe:
    """A change at an instant: its dates, None for a cancellation, and the days ahead."""

    at: float
    span: Span | None
    distance: int


def probes(month: TrueMonth) -> list[Probe]:
    """Return the visible changes of a month, each at many instants."""
    draw = Random(month.starts.isoformat()).random
    found = []
    for step in month.steps:
        span = step.after or step.before
        if not step.visible or span is None or not (step.after or step.cancelled):
            continue
        first, last = month.shown(int(step.at // DAY_S))
        if span[1] < first or span[0] > last:
            continue
        for number in range(INSTANTS):
            at = step.at + ((number + draw()) / INSTANTS * 2 - 1) * AROUND_S
            first, last = month.shown(int(at // DAY_S))
            if 0 <= at < month.ends_s and first <= span[1] and span[0] <= last:
                distance = span[0] - int(at // DAY_S)
                found.append(Probe(at, None if step.cancelled else span, distance))
    return found


def ages(month: TrueMonth, found: Iterable[Probe], pulls: Sequence[TimedPull]) -> list[float]:
    """Return the age of each probe at the first pull that shows it, in seconds."""
    by_date: list[list[float]] = [[] for _ in range(DATES)]
    cancellations: list[float] = []
    for at, span in pulls:
        if span is None:
            cancellations.append(at)
            continue
        first, last = month.shown(int(at // DAY_S))
        for day in range(max(span[0], first), min(span[1], last) + 1):
            by_date[day + BACK].append(at)
    return [_age(probe, by_date, cancellations, month) for probe in found]


def _age(
    probe: Probe, by_date: list[list[float]], cancellations: list[float], month: TrueMonth
) -> float:
    if probe.span is None:
        return cancellations[bisect_right(cancellations, probe.at)] - probe.at
    first, last = probe.span
    # A change that leaves the plan's past unseen ages until then.
    left_at = (last + 1 - month.shown(0)[0]) * DAY_S
    seen = float(left_at)
    for day in range(first, min(last, DATES - BACK - 1) + 1):
        pulled_at = by_date[day + BACK]
        at = bisect_right(pulled_at, probe.at)
        if at < len(pulled_at):
            seen = min(seen, pulled_at[at])
    return seen - probe.at
