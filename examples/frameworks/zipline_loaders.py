"""zipline-reloaded: loaders of features for pipelines, with what each session could know.

zipline's `EventsLoader` takes each date of an event as an event of its own: it shows the first one
after the event was moved. A `DataFrameLoader` shows what a session knew, also in a window that
looks back.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from bars import known_at_bars

import almanac

NUMBERS = ("days_until", "events_ahead", "next_event_impact", "watched")
DATE = "next_event_date"


def baselines(
    db: almanac.Database,
    sessions: pd.DatetimeIndex,
    coins: Mapping[int, str],
    *,
    cutoffs: pd.DatetimeIndex | None = None,
    **wanted: Any,
) -> dict[str, pd.DataFrame]:
    """Return what each session knew: for each column a frame of sessions × sids.

    `coins` has the coin of each sid. `cutoffs` are the timestamps whose knowledge the sessions
    have, by default 00:00 UTC of their days; with a domain, use
    `domain.data_query_cutoff_for_sessions(sessions)`.
    """
    moments = sessions if cutoffs is None else cutoffs
    moments = moments.tz_localize("UTC") if moments.tz is None else moments.tz_convert("UTC")
    found = known_at_bars(db, moments, "1s", coins, as_of="bar_open", **wanted)
    tables = {
        name: pd.DataFrame({sid: known[name].astype("float64") for sid, known in found.items()})
        for name in NUMBERS
    }
    dates = {sid: pd.to_datetime(known[DATE], utc=True) for sid, known in found.items()}
    tables[DATE] = pd.DataFrame(dates).apply(lambda column: column.dt.tz_localize(None))
    return {name: table.set_axis(sessions) for name, table in tables.items()}


class Loaders(dict[Any, Any]):
    """Loaders by column. A pipeline asks for the column of its domain."""

    def __missing__(self, column: Any) -> Any:
        return dict.__getitem__(self, column.unspecialize())


def loaders(frames: Mapping[str, pd.DataFrame]) -> tuple[Any, Loaders]:
    """Return a DataSet with the columns of the frames, and the loader of each of its columns."""
    import numpy as np
    from zipline.pipeline.data import Column, DataSet
    from zipline.pipeline.loaders.frame import DataFrameLoader

    kinds = {name: "datetime64[ns]" if name == DATE else "float64" for name in frames}
    columns = {name: Column(np.dtype(kind)) for name, kind in kinds.items()}
    dataset = type(DataSet)("AlmanacEvents", (DataSet,), columns)
    named = {getattr(dataset, name): frame for name, frame in frames.items()}
    by_column = {column: DataFrameLoader(column, frame) for column, frame in named.items()}
    return dataset, Loaders(by_column)
