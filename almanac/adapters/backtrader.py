"""backtrader: a feed of prices with the features as lines.

    cerebro.adddata(feed(db, prices, "slug:bitcoin", bar="1h"))
    # in a strategy: self.data.days_until[0], self.data.events_ahead[0], self.data.impact[0]

`next` of a strategy runs at the close of a bar, and its orders are executed at the next open. So
the lines have what was known at the close. `EventFeed` is the class of the feeds; it is made at its
first use, since it is derived from one of backtrader.
"""

from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Unpack

from almanac.adapters.bars import NUMBERS, FeatureOptions, coin_of_pair, features_of, framework
from almanac.coins import LabelledCoins
from almanac.errors import InvalidArgument
from almanac.instants import Duration

if TYPE_CHECKING:
    import pandas as pd

    from almanac.coins import Coin
    from almanac.database import Database


def feed(
    db: "Database",
    prices: "pd.DataFrame",
    coin: "str | Coin",
    *,
    bar: Duration,
    dated_by: Literal["open", "close"] = "open",
    options: dict[str, Any] | None = None,
    **wanted: Unpack[FeatureOptions],
) -> Any:
    """Return a feed of backtrader: the prices, with the lines of `EventFeed`.

    Args:
        prices: one row per bar, with columns such as `open` and `close`. It is not changed.
        coin: its slug, ticker or name, or a pair.
        bar: the length of a bar.
        dated_by: what the index has of a bar: its open, as exchanges date bars, or its close.
        options: for the constructor of the feed, such as `{"name": "BTC"}`.
        wanted: `horizon`, `categories` and `min_impact`, as in `Database.features`.

    Raises:
        InvalidArgument: an argument is wrong, or backtrader is not installed.
        AmbiguousCoin, UnknownName: as `Database.resolve`.
    """
    frame = with_lines(db, prices, coin, bar=bar, dated_by=dated_by, **wanted)
    return feed_class()(dataname=frame, **(options or {}))


def with_lines(
    db: "Database",
    prices: "pd.DataFrame",
    coin: "str | Coin",
    *,
    bar: Duration,
    dated_by: Literal["open", "close"] = "open",
    **wanted: Unpack[FeatureOptions],
) -> "pd.DataFrame":
    """Return the prices with a column of numbers for each line; NaN is none. As `feed`."""
    if dated_by not in ("open", "close"):
        raise InvalidArgument(f"dated_by={dated_by!r}; expected open, close")
    taken = {str(name).lower() for name in prices.columns} & set(NUMBERS)
    if taken:  # backtrader finds the columns of lines by name, in any case.
        raise InvalidArgument(f"prices has a column {min(taken)!r} already; rename or drop it")
    named: LabelledCoins = {0: coin_of_pair(db, coin) if isinstance(coin, str) else coin}
    # With dated_by="close" the timestamp of a row is the close of its bar.
    as_of = "bar_close" if dated_by == "open" else "bar_open"
    known = features_of(db, prices.index, bar, named, as_of=as_of, **wanted)[0]
    lines = {line: known[name].astype("float64") for line, name in NUMBERS.items()}
    return prices.assign(**lines)


@cache
def feed_class() -> Any:
    """Return the class `EventFeed`: backtrader's `PandasData` with the lines of `NUMBERS`.

    Raises:
        InvalidArgument: backtrader is not installed.
    """
    pandas_data = framework("backtrader", "backtrader").feeds.PandasData

    # backtrader makes the lines from these two names when the class is made; -1 finds a column by
    # its name.
    body = {
        "__module__": __name__,
        "__qualname__": "EventFeed",
        "__doc__": "A feed of prices with the lines days_until, events_ahead and impact.",
        "lines": tuple(NUMBERS),
        "params": tuple((line, -1) for line in NUMBERS),
    }
    return type(pandas_data)("EventFeed", (pandas_data,), body)


def __getattr__(name: str) -> Any:
    """Make `EventFeed` at its first use; processes of `optstrategy` find it by name, too."""
    if name == "EventFeed":
        return feed_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
