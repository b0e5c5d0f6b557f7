"""The next event of a coin as known at an instant, and how many are ahead, for many instants.

Belongs here: the columns that a join adds. Does not: the caller's frames (rows), spans as steps
(spans). For a coin the answer stays the same until what is known changes, an event comes within the
horizon, or one begins. The steps between are made once; each row finds its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from almanac.frames import Moments
from almanac.joins.spans import NONE, Steps, steps_of
from almanac.reader import Reader
from almanac.reading.named_sql import NamedStatements

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Numbers = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

WATCHED_AGE: Final = timedelta(days=2)
"""How long after a pull its absence of events still says something, as in `Coverage.covers`."""
US: Final = timedelta(microseconds=1)
ORIGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_US: Final = timedelta(days=1) // US
_SQL = NamedStatements("almanac.joins")
_OF_EVENT: Final = {
    "next_event_id": "event_id",
    "next_event_title": "title",
    "next_event_date": "date",
    "next_event_precision": "date_precision",
    "next_event_categories": "categories",
    "next_event_impact": "impact",
    "next_event_band": "impact_band",
    "next_event_known_from": "known_from",
}


@dataclass(frozen=True, slots=True)
class Selection:
    """Which events count: at most `horizon` ahead, and the values of the filters."""

    horizon: timedelta
    filters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NextEvents:
    """What was ahead of some coins from the first instant of interest to the last.

    Attributes:
        spans: times in which an event was ahead, as `spans_ahead` gives them.
        steps: the same as steps. The key of a coin is its place in the list that was asked for.
        watched: times in which a pull had covered a coin, and those in which it had covered all.
        first_pull_us: the instant of the first pull; None if there was none.
    """

    spans: "pa.Table"
    steps: Steps
    watched: tuple[Steps, Steps]
    first_pull_us: int | None

    def of_rows(self, codes: "Numbers", moments: Moments) -> "pa.Table":
        """Return the columns of the join for rows of coins and instants; `NONE` is no coin."""
        import numpy as np
        import pyarrow as pa

        micros = moments.microseconds
        is_requested = moments.is_known & (codes != NONE)
        if self.first_pull_us is None:
            is_requested = np.zeros_like(is_requested)
        else:
            is_requested &= micros >= self.first_pull_us
        # The place NONE is the last one: before the first step nothing is ahead.
        places = self.steps.places(codes, micros)
        found = np.append(self.steps.first, NONE)[places]
        counts = np.append(self.steps.counts, 0)[places]
        found[~is_requested] = NONE
        taken = self.spans.take(pa.array(found, mask=found == NONE))
        columns = {name: taken.column(column) for name, column in _OF_EVENT.items()}
        columns["next_event_impact"] = _floats(columns["next_event_impact"])
        ages = micros - _micros(taken.column("first_seen_at"))
        return pa.table(
            {
                **columns,
                "next_event_age_days": _days(ages, found),
                "days_until": _days_until(taken, micros, found),
                "events_ahead": pa.array(counts, mask=~is_requested),
                "watched": is_requested & self._is_watched(codes, micros),
            }
        )

    def _is_watched(self, codes: "Numbers", micros: "Numbers") -> "Flags":
        """Whether a pull had covered the dates from the day of each instant to the horizon."""
        import numpy as np

        of_coins, of_all = self.watched
        places = np.searchsorted(of_all.instants, micros, "right") - 1
        found: Flags = np.append(of_all.counts, 0)[places] > 0
        found |= np.append(of_coins.counts, 0)[of_coins.places(codes, micros)] > 0
        return found


def next_events(
    reader: Reader, slugs: list[str], selection: Selection, first_us: int, last_us: int
) -> NextEvents:
    """Return what was ahead of coins at the instants from the first to the last."""
    import pyarrow as pa
    import pyarrow.compute as pc

    codes = pa.array(range(len(slugs)), pa.int64())
    coins = {"requested_coins": pa.table({"coin": pa.array(slugs, pa.string()), "code": codes})}
    horizon = {"horizon_us": selection.horizon // US}
    ahead = {**horizon, "first_us": first_us, "last_us": last_us, **selection.filters}
    spans = reader.query(_SQL["spans_ahead"], ahead, frames=coins)
    watched = reader.query(
        _SQL["spans_watched"], {**horizon, "age_us": WATCHED_AGE // US}, frames=coins
    )
    of_all, of_coins = pc.field("code") == NONE, pc.field("code") != NONE
    return NextEvents(
        spans,
        steps_of(spans),
        (steps_of(watched.filter(of_coins)), steps_of(watched.filter(of_all))),
        reader.query(_SQL["first_pull"]).column("first_us")[0].as_py(),
    )


def _days_until(taken: "pa.Table", micros: "Numbers", found: "Numbers") -> "pa.Array":
    """Whole UTC days if the date is a day, so that today is 0 (as days_until of the warehouse)."""
    import numpy as np
    import pyarrow.compute as pc

    date = _micros(taken.column("date"))
    is_day = pc.equal(taken.column("date_precision"), "day").fill_null(False)
    whole = (date // _DAY_US - micros // _DAY_US) * _DAY_US
    return _days(np.where(is_day.to_numpy(), whole, date - micros), found)


def _days(micros: "Numbers", found: "Numbers") -> "pa.Array":
    import pyarrow as pa

    return pa.array(micros / _DAY_US, mask=found == NONE)


def _micros(instants: "pa.ChunkedArray") -> "Numbers":
    import pyarrow as pa

    numbers: Numbers = instants.cast(pa.int64()).fill_null(0).to_numpy()
    return numbers


def _floats(scores: "pa.ChunkedArray") -> "pa.ChunkedArray":
    import pyarrow as pa

    return scores.cast(pa.float64())
