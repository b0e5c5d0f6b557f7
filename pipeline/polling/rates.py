"""Change rates of events by distance, estimated from what pulls showed.

Belongs here: the bands of distance, the observed counts, and the estimate. Does not: which window
is polled when (planner.py). Distances are days from today to the event's date; rates are changes
a day.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

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
class Watched:
    """What pulls have shown so far. Each tuple has one number for each band.

    `announced` and `edited` count new events and changes by the distance of the changed event;
    `date_days` and `event_days` are the observed dates and events, times the days of observation.
    """

    announced: tuple[float, ...]
    edited: tuple[float, ...]
    date_days: tuple[float, ...]
    event_days: tuple[float, ...]
    cancelled: float
    days: float


NOTHING_WATCHED: Final = Watched(*((0.0,) * len(BANDS),) * 4, 0.0, 0.0)
"""A fresh home."""


@dataclass(frozen=True, slots=True)
class ChangeRates:
    """Changes a day: `announced` on one date and `edited` of one event, by band; `cancelled`."""

    announced: tuple[float, ...]
    edited: tuple[float, ...]
    cancelled: float

    def on_date(self, distance: int, events: int) -> float:
        """Return the expected changes a day on a date with a number of known events."""
        band = band_of(distance)
        return self.announced[band] + events * self.edited[band]


def band_of(distance: int) -> int:
    """Return the index of the band of a distance in days."""
    return max(bisect_right(BANDS, distance) - 1, 0)


def rates(watched: Watched) -> ChangeRates:
    """Return the mean of the Gamma posterior of every rate; for a fresh home that of the prior."""
    announced = zip(PRIOR_ANNOUNCED, watched.announced, watched.date_days, strict=True)
    edited = zip(PRIOR_EDITED, watched.edited, watched.event_days, strict=True)
    return ChangeRates(
        tuple(_posterior(*counts) for counts in announced),
        tuple(_posterior(*counts) for counts in edited),
        _posterior(PRIOR_CANCELLED, watched.cancelled, watched.days),
    )


def _posterior(prior: float, changes: float, exposure: float) -> float:
    return (PRIOR_CHANGES + changes) / (PRIOR_CHANGES / prior + exposure)
