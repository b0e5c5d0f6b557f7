"""vectorbt: boolean frames of entries and exits, each at the bar at whose open it is executed.

    entries = next_open(db, close, lambda known: known["days_until"].between(0, 3), bar="1d")
    exits = next_open(db, close, lambda known: known["events_ahead"] == 0, bar="1d")
    vectorbt.Portfolio.from_signals(close, entries, exits, price=open_)

A rule sees what was known at the close of a bar. `from_signals` executes a signal in its own row:
with the opens as `price`, that is before the bar. So a signal stands in the row of the next bar.
vectorbt itself is not imported.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from almanac.adapters.bars import FeatureOptions, coins_of_labels, features_of
from almanac.coins import LabelledCoins
from almanac.errors import InvalidArgument
from almanac.instants import Duration

if TYPE_CHECKING:
    import pandas as pd

    from almanac.database import Database

Rule = Callable[["pd.DataFrame"], Any]
"""Returns which rows of the features of a coin are a signal: a boolean for each row."""


def next_open(
    db: "Database",
    prices: "pd.DataFrame",
    rule: Rule,
    *,
    bar: Duration,
    coins: LabelledCoins | None = None,
    **wanted: Unpack[FeatureOptions],
) -> "pd.DataFrame":
    """Return where a rule held at the close before: a boolean frame, index and columns as prices.

    Args:
        prices: any frame of the bars, indexed by their opens, one column for each symbol.
        rule: called once for each column, with the frame of `Database.features` of its coin.
        bar: the length of a bar.
        coins: the coins of columns whose label is not a unique ticker, pair or slug.
        wanted: `horizon`, `categories` and `min_impact`, as in `Database.features`.

    Returns:
        The first row is false: nothing was known at a close before it. A signal of the last row is
        left out: its next open is not in the frame.

    Raises:
        InvalidArgument: an argument is wrong, or the rule does not return a boolean for each row.
        AmbiguousCoin, UnknownName: the coin of a column; name it in `coins`.
    """
    import pandas as pd

    if not isinstance(prices, pd.DataFrame):
        raise InvalidArgument(
            f"prices is a {type(prices).__name__}; expected a DataFrame with a column for each "
            "symbol: series.to_frame('BTC')"
        )
    named = coins_of_labels(db, prices.columns, coins)
    found = features_of(db, prices.index, bar, named, **wanted)
    columns = [_signal(rule(known), known) for known in found.values()]
    if not columns:
        return pd.DataFrame(index=prices.index, columns=prices.columns, dtype=bool)
    at_close = pd.concat(columns, axis=1, keys=range(len(columns)))
    return at_close.shift(1, fill_value=False).set_axis(prices.columns, axis=1)


def _signal(given: Any, known: "pd.DataFrame") -> "pd.Series":
    """Return a signal as booleans in the rows of the features; unknown is false."""
    import pandas as pd

    signal = given if isinstance(given, pd.Series) else pd.Series(given, index=known.index)
    if len(signal) != len(known) or not signal.index.equals(known.index):
        raise InvalidArgument(
            f"the rule returned {len(signal)} rows of another index; expected a boolean for each "
            f"of the {len(known)} rows that it was given"
        )
    if not pd.api.types.is_bool_dtype(signal.dtype):
        raise InvalidArgument(
            f"the rule returned {signal.dtype}; expected booleans, such as known['days_until'] <= 3"
        )
    return signal.fillna(False).astype(bool)
