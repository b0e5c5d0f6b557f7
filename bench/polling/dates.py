"""The number of events on each date, as events change. Dates are days from the month's start."""

from collections.abc import Iterable
from functools import lru_cache

from bench.polling.truth import BACK, DATES, DAY_S, Span, Step, TrueMonth


class Dates:
    """The number of events on each date, updated as events are added, moved and removed."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self.begins = [0] * DATES
        self.runs_on = [0] * DATES
        for span in spans:
            self.add(span, 1)

    def add(self, span: Span, count: int) -> None:
        first, last = span[0] + BACK, min(span[1] + BACK, DATES - 1)
        if 0 <= first < DATES:
            self.begins[first] += count
        for day in range(max(first + 1, 0), last + 1):
            self.runs_on[day] += count

    def move(self, step: Step) -> None:
        if step.before is not None:
            self.add(step.before, -1)
        if step.after is not None:
            self.add(step.after, 1)

    def copy(self) -> "Dates":
        other = Dates()
        other.begins, other.runs_on = self.begins.copy(), self.runs_on.copy()
        return other

    def rows(self, first: int, last: int) -> int:
        begin = first + BACK
        return sum(self.begins[begin : last + BACK + 1]) + self.runs_on[begin]


@lru_cache(maxsize=2)
def mornings(month: TrueMonth) -> tuple[Dates, ...]:
    """Return the true number of events on each date, at each midnight of a month."""
    found, now, step = [], Dates(month.spans.values()), 0
    for today in range(int(month.ends_s // DAY_S)):
        while step < len(month.steps) and month.steps[step].at <= today * DAY_S:
            now.move(month.steps[step])
            step += 1
        found.append(now.copy())
    return tuple(found)
