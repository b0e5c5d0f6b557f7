"""vectorbt: boolean frames of entries and exits, each at the bar at whose open it is executed.

`Portfolio.from_signals` executes a signal in its own row. With the opens as `price` that is before
the bar, so a signal stands in the row after the close at which it was known.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
from bars import known_at_bars

import almanac


def next_open(
    db: almanac.Database,
    prices: pd.DataFrame,
    rule: Callable[[pd.DataFrame], Any],
    *,
    bar: str,
    coins: Mapping[Any, str] | None = None,
    **wanted: Any,
) -> pd.DataFrame:
    """Return where a rule held at the close before: a frame with the index and columns of prices.

    `coins` has the coin of each column; without it the labels are tickers, pairs or slugs. The
    rule gets the features of a coin and returns a boolean for each row.
    """
    named = coins or {label: str(label) for label in prices.columns}
    found = known_at_bars(db, prices.index, bar, named, **wanted)
    at_close = pd.DataFrame({label: rule(known) for label, known in found.items()})
    return at_close.fillna(False).astype(bool).shift(1, fill_value=False)[prices.columns]
