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
from almanac.joins.spans import NONE, steps_of
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
class Rows:
    """Rows that ask: `codes` are the places of their coins in `slugs`, `NONE` for no coin."""

    codes: "Numbers"
    moments: Moments
    slugs: list[str]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which events count: at most `horizon` ahead, and the values of the filters."""

    horizon: timedelta
    filters: Mapping[str, Any]


def next_events(reader: Reader, rows: Rows, selection: Selection) -> "pa.Table":
    """Return the columns of the join, one row for each row."""
    import numpy as np
    import pyarrow as pa

    micros = rows.moments.microseconds
    is_requested = rows.moments.is_known & (rows.codes != NONE)
    asked = micros[is_requested] if is_requested.any() else np.zeros(1, np.int64)
    codes = pa.array(range(len(rows.slugs)), pa.int64())
    coins = pa.table({"coin": pa.array(rows.slugs, pa.string()), "code": codes})
    values = {
        "horizon_us": selection.horizon // US,
        "first_us": int(asked.min()),
        "last_us": int(asked.max()),
        **selection.filters,
    }
    spans = reader.query(_SQL["spans_ahead"], values, frames={"requested_coins": coins})
    first_pull = reader.query(_SQL["first_pull"]).column("first_us")[0].as_py()
    if first_pull is None:
        is_requested = np.zeros_like(is_requested)
    else:
        is_requested &= micros >= first_pull
    steps = steps_of(spans)
    # The place NONE is the last one: before the first step nothing is ahead.
    places = steps.places(rows.codes, micros)
    found = np.append(steps.first, NONE)[places]
    counts = np.append(steps.counts, 0)[places]
    found[~is_requested] = NONE
    taken = spans.take(pa.array(found, mask=found == NONE))
    columns = {name: taken.column(column) for name, column in _OF_EVENT.items()}
    columns["next_event_impact"] = _floats(columns["next_event_impact"])
    return pa.table(
        {
            **columns,
            "next_event_age_days": _days(micros - _micros(taken.column("first_seen_at")), found),
            "days_until": _days_until(taken, micros, found),
            "events_ahead": pa.array(counts, mask=~is_requested),
            "watched": is_requested & _is_watched(reader, rows, selection.horizon, coins),
        }
    )


def _is_watched(reader: Reader, rows: Rows, horizon: timedelta, coins: "pa.Table") -> "Flags":
    """Whether a pull had covered the dates from the day of each row's instant to the horizon."""
    import numpy as np
    import pyarrow.compute as pc

    values = {"horizon_us": horizon // US, "age_us": WATCHED_AGE // US}
    spans = reader.query(_SQL["spans_watched"], values, frames={"requested_coins": coins})
    of_coins, micros = spans.filter(pc.field("code") != NONE), rows.moments.microseconds
    of_all, steps = steps_of(spans.filter(pc.field("code") == NONE)), steps_of(of_coins)
    at_all = np.append(of_all.counts, 0)[np.searchsorted(of_all.instants, micros, "right") - 1]
    found: Flags = at_all > 0
    found |= np.append(steps.counts, 0)[steps.places(rows.codes, micros)] > 0
    return found


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
