"""Shared by the adapters: bars, coins of labels, features in the user's rows."""

from collections.abc import Hashable, Iterable
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from almanac.coins import Coin, LabelledCoins, resolve_pair
from almanac.errors import InvalidArgument
from almanac.events import Names
from almanac.instants import Duration, duration

if TYPE_CHECKING:
    import pandas as pd

    from almanac.database import Database

NUMBERS: Final = {
    "days_until": "days_until",
    "events_ahead": "events_ahead",
    "impact": "next_event_impact",
    "watched": "watched",
}
"""The features that are numbers, under the names of lines and of columns; NaN is unknown."""
INSTANT: Final = timedelta(microseconds=1)
"""The bar of an index of timestamps that are not bars: the resolution of the warehouse."""


class FeatureOptions(TypedDict, total=False):
    """Which events count, as in `Database.features`."""

    horizon: Duration
    categories: Names | None
    min_impact: float | None


def features_of(
    db: "Database",
    index: "pd.DatetimeIndex",
    bar: Duration,
    coins: LabelledCoins,
    *,
    as_of: Any = "bar_close",
    **wanted: Unpack[FeatureOptions],
) -> dict[Hashable, "pd.DataFrame"]:
    """Return the features of each label: a frame with the rows and the index of the caller."""
    check_bars(index, bar)
    labels = list(coins)
    # A label may be a number; the names of the query are texts.
    symbols = {str(place): coins[label] for place, label in enumerate(labels)}
    found = db.features(index, bar=bar, symbols=symbols, as_of=as_of, **wanted)
    # A comparison with NaN is false; one with the NA of a nullable number is neither.
    found = found.astype({"events_ahead": "float64"})
    # The rows are sorted by bar, then in the order of the symbols.
    parts = (found.iloc[place :: len(labels)] for place in range(len(labels)))
    return {label: part.set_axis(index) for label, part in zip(labels, parts, strict=True)}


def check_bars(index: Any, bar: Duration) -> None:
    """Check that an index is of bars that do not overlap.

    If bars were longer than the time to the next one, a row would have what became known after the
    next bar opened: look-ahead.
    """
    import pandas as pd

    if not isinstance(index, pd.DatetimeIndex):
        raise InvalidArgument(
            f"the index is a {type(index).__name__}; expected a DatetimeIndex, the opens of bars"
        )
    if not (index.is_monotonic_increasing and index.is_unique) or index.hasnans:
        raise InvalidArgument(
            "the index is not increasing; expected one row per bar, oldest first: "
            "frame = frame[~frame.index.duplicated()].sort_index()"
        )
    nearest = index.to_series().diff().min()
    if len(index) > 1 and nearest < duration(bar, "bar"):
        raise InvalidArgument(
            f"bar={bar!r}, but some bars are {nearest} apart. A row would have what became known "
            "after the next bar opened. Use the length of the shortest bar."
        )


def coin_of_pair(db: "Database", pair: str, coins: LabelledCoins | None = None) -> Coin:
    """Return the coin of a pair such as `BTC/USDT`, `BTC/USDT:USDT`, `BTC-USD`, a ticker or slug.

    `coins` goes first: the coins of the pairs, or of their tickers, that the caller names.
    """
    return resolve_pair(db.reader, pair, coins)


def coins_of_labels(
    db: "Database", labels: Iterable[Any], coins: LabelledCoins | None
) -> dict[Any, str | Coin]:
    """Return the coin of each label, as `coin_of_pair`."""
    return {label: coin_of_pair(db, str(label), _with_texts(coins)) for label in labels}


def framework(name: str, package: str) -> Any:
    """Import a module of a framework, which the caller has installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name.partition(".")[0]:
            raise  # The framework is there, and lacks something of its own.
        raise InvalidArgument(
            f"{name.partition('.')[0]} is not installed, and this adapter needs it: "
            f"pip install {package}"
        ) from error


def _with_texts(coins: LabelledCoins | None) -> LabelledCoins | None:
    """Return the coins under the texts of their labels, since a label may be a number."""
    return None if coins is None else {str(label): coin for label, coin in coins.items()}
