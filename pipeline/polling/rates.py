"""How often events change, by how far ahead they lie: learned from what looks showed.

Belongs here: the bands of distance, what was watched, and the estimate. Does not: which window is
looked at when (planner.py). Distances are days from today to the event's date; rates are
changes a day.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

BANDS: Final = (-30, -7, 0, 1, 2, 4, 8, 15, 31, 61, 91, 181, 366)
"""The least distance of each band, ascending. Nearer than the first belongs to the first."""

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
"""How many seen changes of a band weigh as much as its prior."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What looks showed so far. Each tuple has one number a band.

    `announced` and `edited` count new events and changes by the distance at which they lie after
    it; `date_days` and `event_days` are how many dates and events were watched for how many days.
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
        """Return the changes a day expected on a date with so many known events."""
        band = band_of(distance)
        return self.announced[band] + events * self.edited[band]


def band_of(distance: int) -> int:
    """Return the index of the band that a distance in days lies in."""
    return max(bisect_right(BANDS, distance) - 1, 0)


def rates(watched: Watched) -> ChangeRates:
    """Return the mean of the Gamma posterior of every rate; of a fresh home, the prior's."""
    announced = zip(PRIOR_ANNOUNCED, watched.announced, watched.date_days, strict=True)
    edited = zip(PRIOR_EDITED, watched.edited, watched.event_days, strict=True)
    return ChangeRates(
        tuple(_posterior(*counts) for counts in announced),
        tuple(_posterior(*counts) for counts in edited),
        _posterior(PRIOR_CANCELLED, watched.cancelled, watched.days),
    )


def _posterior(prior: float, changes: float, exposure: float) -> float:
    return (PRIOR_CHANGES + changes) / (PRIOR_CHANGES / prior + exposure)
