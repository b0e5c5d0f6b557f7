"""Change rates of events, and windows of event dates that are pulled together.

A list costs one request for each page, full or not, so a window pays off if its last page is nearly
full; docs/limits.md, "When Almanac polls", explains the method. Distances are days from today to
the event's date, dates are UTC days, and rates are changes a day.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from heapq import heappop, heappush
from itertools import accumulate
from math import ceil, sqrt
from typing import Final

from catalog.contract.constants import EVENTS_LIMIT_MAX
from resources.ingest.scopes import PollWindow

BANDS: Final = (-30, -7, 0, 1, 2, 4, 8, 15, 31, 61, 91, 181, 366)
"""The least distance of each band, ascending. A smaller distance belongs to the first band."""

PRIOR_ANNOUNCED: Final = (
    *(0.01, 0.01, 0.01, 1.6, 0.9, 0.65, 0.49),
    *(0.23, 0.14, 0.072, 0.048, 0.016, 0.0017),
)
"""New events a day on one date, by band, before anything was seen."""
PRIOR_EDITED: Final = (
    *(0.004, 0.0065, 0.03, 0.12, 0.045, 0.045, 0.028),
    *(0.017, 0.0145, 0.0135, 0.008, 0.005, 0.0045),
)
"""Changes a day of one known event, by band, before anything was seen."""
PRIOR_CANCELLED: Final = 3.7
"""Cancellations a day in the whole catalog, before anything was seen."""
PRIOR_CHANGES: Final = 10.0
"""The number of observed changes of a band that weigh as much as its prior."""


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """The observations of pulls so far. Each tuple has one number for each band.

    `announced` and `edited` count new events and changes by the distance of the changed event;
    `date_days` and `event_days` are the observed dates and events, times the days of observation.
    """

    announced: tuple[float, ...]
    edited: tuple[float, ...]
    date_days: tuple[float, ...]
    event_days: tuple[float, ...]
    cancelled: float
    days: float


NO_CHANGE_COUNTS: Final = ChangeCounts(*((0.0,) * len(BANDS),) * 4, 0.0, 0.0)
"""A fresh home."""


@dataclass(frozen=True, slots=True)
class ChangeRates:
    """Changes a day: `announced` on one date and `edited` of one event, by band; `cancelled`."""

    announced: tuple[float, ...]
    edited: tuple[float, ...]
    cancelled: float

    def on_date(self, distance: int, events: int) -> float:
        """Return the expected changes a day on a date with a number of known events."""
        band = find_band(distance)
        return self.announced[band] + events * self.edited[band]


def find_band(distance: int) -> int:
    """Return the index of the band of a distance in days."""
    return max(bisect_right(BANDS, distance) - 1, 0)


def estimate_rates(watched: ChangeCounts) -> ChangeRates:
    """Return the mean of the Gamma posterior of every rate; for a fresh home the prior's mean."""
    announced = zip(PRIOR_ANNOUNCED, watched.announced, watched.date_days, strict=True)
    edited = zip(PRIOR_EDITED, watched.edited, watched.event_days, strict=True)
    return ChangeRates(
        tuple(_posterior(*counts) for counts in announced),
        tuple(_posterior(*counts) for counts in edited),
        _posterior(PRIOR_CANCELLED, watched.cancelled, watched.days),
    )


def _posterior(prior: float, changes: float, exposure: float) -> float:
    return (PRIOR_CHANGES + changes) / (PRIOR_CHANGES / prior + exposure)


SLACK_ROWS: Final = 1.0
"""Rows of a page that stay free, beside one for each expected change."""
TIGHT_DAYS: Final = 0.1
"""If the interval of pulling everything is longer, more ways to cut are tried."""
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, eq=False)
class Calendar:
    """The events that begin on each date, and the events that run on from an earlier date."""

    begins: Mapping[date, int]
    runs_on: Mapping[date, int]


@dataclass(frozen=True, slots=True)
class WindowLoad:
    """A window with the expected rows of its next pull, and the changes a day on each date."""

    window: PollWindow
    rows: float
    dates: tuple[tuple[date, float], ...]

    @property
    def pages(self) -> int:
        return count_pages(self.rows)

    @property
    def changes_per_day(self) -> float:
        return sum(changes for _, changes in self.dates)


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """A window that is pulled as one, and a core within it that is pulled twice as often.

    Every second pull of the core is a pull of the whole, which costs no more than the whole alone;
    two windows side by side would each have a page that is not full.
    """

    whole: WindowLoad
    core: WindowLoad | None = None


Partitioning = tuple[WindowPlan, ...]


def count_events(spans: Iterable[tuple[date, date | None]]) -> Calendar:
    """Count events by date; a span is an event's `date` and `dateEnd`."""
    begins: Counter[date] = Counter()
    steps: Counter[date] = Counter()
    for first, last in spans:
        begins[first] += 1
        if last is not None and last > first:
            steps[first + _DAY] += 1
            steps[last + _DAY] -= 1
    runs_on: dict[date, int] = {}
    running, dates = 0, sorted(steps)
    for at, day in enumerate(dates):
        running += steps[day]
        until = dates[at + 1] if at + 1 < len(dates) else day
        while running and day < until:
            runs_on[day] = running
            day += _DAY
    return Calendar(begins, runs_on)


def count_pages(rows: float) -> int:
    """Return the requests of a list with a number of expected rows, slack included."""
    return max(1, ceil((rows + SLACK_ROWS) / EVENTS_LIMIT_MAX))


def join_loads(load: WindowLoad, after: WindowLoad) -> WindowLoad:
    """Return two neighbours as one; an event in both is counted twice."""
    window = PollWindow(load.window.first, after.window.last)
    return WindowLoad(window, load.rows + after.rows, load.dates + after.dates)


@lru_cache(maxsize=8)
def cut_calendar(
    calendar: Calendar, rates: ChangeRates, shown: PollWindow, today: date, per_day: float
) -> tuple[Partitioning, ...]:
    """Return ways to cut the dates that a plan shows: as one window, with cores and without.

    `per_day` is roughly the requests of a day; the fewer, the more a window grows between two
    pulls, and the more of the calendar is left to the daily job.
    """
    dates = _Dates(calendar, rates, shown, today, per_day)
    whole = (WindowPlan(dates.load_of(0, len(dates.days))),)
    found: list[Partitioning] = [whole]
    for worth in dates.worths():
        found += [dates.cut(worth, cores=True), dates.cut(worth, cores=False)]
    return tuple(dict.fromkeys(found))


class _Dates:
    """The dates of a window with running sums of their expected rows and changes.

    `cycle_days` is the interval, in days, if everything is pulled together.
    """

    def __init__(
        self, calendar: Calendar, rates: ChangeRates, shown: PollWindow, today: date, per_day: float
    ) -> None:
        known = max(calendar.begins, default=today)
        last = max(known, today, shown.first) if shown.last is None else shown.last
        count = (last - shown.first).days + 1
        self.days = [shown.first + timedelta(days=at) for at in range(count)]
        self.end = shown.last
        self.today = (today - shown.first).days
        events = [calendar.begins.get(day, 0) for day in self.days]
        self.runs_on = [calendar.runs_on.get(day, 0) for day in self.days]
        self.changes = [
            rates.on_date((day - today).days, here)
            for day, here in zip(self.days, events, strict=True)
        ]
        self.changes_before = list(accumulate(self.changes, initial=0.0))
        at_once = max(1.0, sum(events) / EVENTS_LIMIT_MAX)
        self.cycle_days = at_once / (per_day + at_once)
        self.worth = max(self.changes_before[-1] * self.cycle_days**2 / (2 * at_once), 1e-12)
        rows = (
            have + self.cycle_days * new for have, new in zip(events, self.changes, strict=True)
        )
        self.rows_before = list(accumulate(rows, initial=0.0))
        self.pages = count_pages(self.rows(0, count))
        self.cores = list(self._cores())

    def rows(self, start: int, stop: int) -> float:
        return self.rows_before[stop] - self.rows_before[start] + self.runs_on[start]

    def rate(self, start: int, stop: int) -> float:
        return self.changes_before[stop] - self.changes_before[start]

    def load_of(self, start: int, stop: int) -> WindowLoad:
        last = self.end if stop == len(self.days) else self.days[stop - 1]
        dates = tuple(zip(self.days[start:stop], self.changes[start:stop], strict=True))
        return WindowLoad(PollWindow(self.days[start], last), self.rows(start, stop), dates)

    def worths(self) -> tuple[float, ...]:
        """Return by how much one request must lower the sum of ages: the thresholds to try.

        The first is for pulling everything together; higher ones leave more to the daily job.
        """
        return tuple(
            self.worth * factor for factor in ((1,) if self.cycle_days < TIGHT_DAYS else (1, 2, 4))
        )

    def cut(self, worth: float, *, cores: bool) -> Partitioning:
        """Return the cut with the least sum of ages and weighted requests."""
        end = len(self.days)
        best: dict[int, tuple[float, int, _Core]] = {0: (0.0, 0, None)}
        waiting = [0]
        while (start := heappop(waiting)) != end:
            for stop in self._stops(start):
                cost, core = self._cost(start, stop, worth, cores=cores)
                sum_ = best[start][0] + cost
                if stop not in best:
                    heappush(waiting, stop)
                if stop not in best or sum_ < best[stop][0]:
                    best[stop] = (sum_, start, core)
        found: list[WindowPlan] = []
        stop = end
        while stop:
            _, start, core = best[stop]
            found.append(
                WindowPlan(self.load_of(start, stop), None if core is None else self.load_of(*core))
            )
            stop = start
        return tuple(reversed(found))

    def _stops(self, start: int) -> set[int]:
        """Return the possible ends of a window, where its last page is as full as possible."""
        found = {at for at in (self.today, self.today + 1) if start < at <= len(self.days)}
        least = count_pages(self.rows(start, start + 1))
        for pages in range(least, max(least, self.pages) + 1):
            stop = self._filled(start, pages)
            found.add(stop)
            if stop == len(self.days):
                break
        return found

    def _filled(self, start: int, pages: int) -> int:
        room = self.rows_before[start] - self.runs_on[start] - SLACK_ROWS
        return max(bisect_right(self.rows_before, room + pages * EVENTS_LIMIT_MAX) - 1, start + 1)

    def _cost(self, start: int, stop: int, worth: float, *, cores: bool) -> tuple[float, "_Core"]:
        """Return the ages and weighted requests of a part at its best pace, and its best core."""
        pages, changes = count_pages(self.rows(start, stop)), self.rate(start, stop)
        least, found = _paced(worth, changes, pages, 0), None
        if not cores or not start <= self.today + 1 < stop:
            return least, found
        for first, last, count, half in self.cores:
            if first >= start and last <= stop and count < pages:
                # The core is pulled twice as often, so its changes wait half as long.
                cost = _paced(worth, changes - half, pages + count, count)
                if cost < least:
                    least, found = cost, (first, last)
        return least, found

    def _cores(self) -> Iterator[tuple[int, int, int, float]]:
        """Yield windows from today or tomorrow: their edges, pages, and half their changes."""
        for first in (self.today, self.today + 1):
            for pages in range(1, self.pages if 0 <= first < len(self.days) else 0):
                last = self._filled(first, pages)
                if count_pages(self.rows(first, last)) == pages:
                    yield first, last, pages, self.rate(first, last) / 2


_Core = tuple[int, int] | None


def _paced(worth: float, changes: float, price: int, core: int) -> float:
    """Return the minimum of changes / (2 pulls) + worth (pulls x price - the daily job's part)."""
    if changes <= 2 * worth * price:
        return changes / 2 + worth * core
    return sqrt(2 * worth * price * changes) - worth * (price - core)
