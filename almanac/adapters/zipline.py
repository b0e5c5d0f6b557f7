"""zipline-reloaded: a DataSet of features for pipelines, with what each session could know.

    from almanac.adapters.zipline import AlmanacEvents, loaders
    pipe = Pipeline({"days_until": AlmanacEvents.days_until.latest})
    run_algorithm(…, custom_loader=loaders(db, sessions, {sid: "slug:bitcoin"}))

A row of a `DataFrameLoader` is what the algorithm may see in that session. So the row of a session
has what was known at its cutoff, and the rows of a window that looks back have what each of
those sessions knew. zipline's `EventsLoader` can't do this: it takes each date of an event as an
event of its own, and shows the first, also after it was moved.
"""

from collections.abc import Hashable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Unpack

from almanac.adapters.bars import INSTANT, NUMBERS, FeatureOptions, features_of, framework
from almanac.errors import InvalidArgument

if TYPE_CHECKING:
    import pandas as pd

    from almanac.coins import Coin
    from almanac.database import Database

_DATES: Final = {"next_event_date": "next_event_date"}


def loaders(
    db: "Database",
    sessions: "pd.DatetimeIndex",
    coins: "Mapping[Any, str | Coin]",
    *,
    cutoffs: "pd.DatetimeIndex | None" = None,
    **wanted: Unpack[FeatureOptions],
) -> dict[Any, Any]:
    """Return a `DataFrameLoader` for each column of `AlmanacEvents`: the `custom_loader` of a run.

    Args:
        sessions: the labels of the sessions, without a zone, as zipline has them.
        coins: the coin of each asset, by its sid.
        cutoffs: the timestamp whose knowledge a session has, one for each; without them the first
            timestamp of its day, UTC. For a domain, use
            `domain.data_query_cutoff_for_sessions(sessions)`. `days_until` counts from it.
        wanted: `horizon`, `categories` and `min_impact`, as in `Database.features`.

    Raises:
        InvalidArgument: an argument is wrong, or zipline is not installed.
        AmbiguousCoin, UnknownName: as `Database.resolve`.
    """
    frame_loader = framework("zipline.pipeline.loaders.frame", "zipline-reloaded").DataFrameLoader
    dataset = dataset_class()
    frames = baselines(db, sessions, coins, cutoffs=cutoffs, **wanted)
    columns = {name: getattr(dataset, name) for name in frames}
    return _Loaders({columns[name]: frame_loader(columns[name], frames[name]) for name in frames})


def baselines(
    db: "Database",
    sessions: "pd.DatetimeIndex",
    coins: "Mapping[Any, str | Coin]",
    *,
    cutoffs: "pd.DatetimeIndex | None" = None,
    **wanted: Unpack[FeatureOptions],
) -> "dict[str, pd.DataFrame]":
    """Return what each session knew: for each column a frame of sessions × sids. As `loaders`.

    Numbers are NaN and dates are NaT if no event was known. Dates are UTC, without a zone.
    """
    known = features_of(
        db, _instants(sessions, cutoffs), INSTANT, coins, as_of="bar_open", **wanted
    )
    numbers = {column: _table(known, name, "float64", sessions) for column, name in NUMBERS.items()}
    dates = {
        column: _table(known, name, "datetime64[ns, UTC]", sessions).apply(
            lambda dates: dates.dt.tz_localize(None)
        )
        for column, name in _DATES.items()
    }
    return {**numbers, **dates}


@cache
def dataset_class() -> Any:
    """Return the class `AlmanacEvents`: a DataSet with a column for each feature.

    Raises:
        InvalidArgument: zipline is not installed.
    """
    data = framework("zipline.pipeline.data", "zipline-reloaded")
    import numpy as np

    body = {
        "__module__": __name__,
        "__qualname__": "AlmanacEvents",
        "__doc__": "The next event of each asset, as known before a session.",
        **{name: data.Column(np.dtype("float64")) for name in NUMBERS},
        **{name: data.Column(np.dtype("datetime64[ns]")) for name in _DATES},
    }
    return type(data.DataSet)("AlmanacEvents", (data.DataSet,), body)


def __getattr__(name: str) -> Any:
    """Make `AlmanacEvents` at its first use."""
    if name == "AlmanacEvents":
        return dataset_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Loaders(dict[Any, Any]):
    """Loaders by column; a pipeline with a domain asks for the column of that domain."""

    def __missing__(self, column: Any) -> Any:
        generic = column.unspecialize()
        if generic not in self:
            raise KeyError(column)
        return self[generic]


def _instants(
    sessions: "pd.DatetimeIndex", cutoffs: "pd.DatetimeIndex | None"
) -> "pd.DatetimeIndex":
    """Return the cutoffs in UTC; a label of a session is its day there."""
    import pandas as pd

    given = sessions if cutoffs is None else cutoffs
    if not isinstance(given, pd.DatetimeIndex) or len(given) != len(sessions):
        raise InvalidArgument(
            "sessions and cutoffs: expected two DatetimeIndex of the same length, or sessions alone"
        )
    return given.tz_localize("UTC") if given.tz is None else given.tz_convert("UTC")


def _table(
    known: "Mapping[Hashable, pd.DataFrame]", name: str, kind: str, sessions: "pd.DatetimeIndex"
) -> "pd.DataFrame":
    import pandas as pd

    columns = {sid: frame[name].astype(kind) for sid, frame in known.items()}
    return pd.DataFrame(columns).set_axis(sessions)
