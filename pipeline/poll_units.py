"""One thing to look at, how often, and when: a cell of the calendar, or the cancellations.

A cell is due when its dates, weighed by how often they change, have waited for its interval: so a
cut that moves its edges loses no look.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from pipeline.poll_intervals import Demand
from pipeline.poll_plan import Known
from pipeline.poll_times import due_at
from pipeline.poll_windows import Cell, Run, Window

NEVER: Final = timedelta(days=2)
"""How long ago a date was looked at that no look is known of."""
TOGETHER: Final = 0.15
"""How early, as a share of its interval, a window is looked at along with its core."""
_DAY: Final = timedelta(days=1)
Dated = tuple[tuple[date, float], ...]
"""Dates with the changes a day expected on each."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A cell of the calendar, or the cancellations (None), with its turns and what is due when."""

    cell: Cell | None
    demand: Demand
    turns: int
    interval: timedelta
    least: timedelta
    whole_at: datetime
    core_at: datetime

    @property
    def due_at(self) -> datetime:
        return min(self.whole_at, self.core_at)

    def due(self, now: datetime) -> Run | None:
        """Return what of a cell is due; the whole comes along with its core when nearly so."""
        if self.cell is None or now < self.due_at:
            return None
        whole = now >= self.whole_at - self.interval * TOGETHER
        return self.cell.whole if whole or self.cell.core is None else self.cell.core

    def next_at(self, now: datetime) -> datetime:
        """Return when something is due once what is due now is done."""
        if now < self.due_at:
            return self.due_at
        whole_again = due_at(now, self.interval, self.least)
        if self.cell is None or self.cell.core is None:
            return whole_again
        whole_at = whole_again if self.due(now) is self.cell.whole else self.whole_at
        return min(whole_at, due_at(now, self.interval / 2, self.least))


def unit_of(cell: Cell | None, turns: int, known: Known) -> Unit:
    interval, least = _DAY / (turns + 1), known.least()
    if cell is None:
        demand = Demand(known.rates.cancelled, 1)
        looked_at = known.cancellations_looked_at or known.now - NEVER
        again_at = due_at(looked_at, interval, least)
        return Unit(None, demand, turns, interval, least, again_at, again_at)
    core = () if cell.core is None else cell.core.dates
    around = _without(cell.whole.dates, core) if core else cell.whole.dates
    whole_at = due_at(_looked_at(around, known), interval, least)
    core_at = due_at(_looked_at(core, known), interval / 2, least) if core else whole_at
    return Unit(cell, demand_of(cell), turns, interval, least, whole_at, core_at)


def demand_of(cell: Cell) -> Demand:
    changes, core = cell.whole.changes_per_day, cell.core
    if core is None:
        return Demand(changes, cell.whole.pages)
    price = cell.whole.pages + core.pages
    return Demand(changes - core.changes_per_day / 2, price, core.pages)


def _without(dates: Dated, core: Dated) -> Dated:
    first, last = core[0][0], core[-1][0]
    return tuple(one for one in dates if not first <= one[0] <= last)


def _looked_at(dates: Dated, known: Known) -> datetime:
    """Return when dates were looked at last: the mean, each weighed by how often it changes."""
    never = known.now - NEVER
    weight, waited_s = 0.0, 0.0
    for day, changes in dates:
        last = max(known.last_looks.get(day, never), never)
        weight += changes
        waited_s += changes * (known.now - last).total_seconds()
    return known.now - timedelta(seconds=waited_s / weight) if weight else never


def without_fresh_edges(run: Run, known: Known) -> Run:
    """Return a run less the dates at its edges that were looked at within the least interval.

    A window whose edges moved may take in what its neighbour has just shown.
    """
    since = known.now - known.least()
    stale = [
        at for at, (day, _) in enumerate(run.dates) if known.last_looks.get(day, since) <= since
    ]
    if not stale:
        return run
    last = len(run.dates) - 1 if run.window.last is None else stale[-1]
    if (stale[0], last) == (0, len(run.dates) - 1):
        return run
    dates = run.dates[stale[0] : last + 1]
    end = None if run.window.last is None else dates[-1][0]
    return Run(Window(dates[0][0], end), run.rows, dates)
