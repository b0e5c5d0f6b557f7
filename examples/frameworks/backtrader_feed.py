"""backtrader: a feed of prices with the features as lines.

`next` of a strategy runs at the close of a bar, and its orders are executed at the next open. So
the lines have what was known at the close.
"""

from typing import Any

import pandas as pd
from bars import known_at_bars

import almanac

LINES = {
    "days_until": "days_until",
    "events_ahead": "events_ahead",
    "event_impact": "next_event_impact",
    "watched": "watched",
}
"""The lines, and the features they show; NaN is none."""


def with_lines(
    db: almanac.Database, prices: pd.DataFrame, coin: str, *, bar: str, **wanted: Any
) -> pd.DataFrame:
    """Return the prices with a column of numbers for each line.

    The index has the opens of the bars. If it has their closes, add `as_of="bar_open"`.
    """
    known = known_at_bars(db, prices.index, bar, {0: coin}, **wanted)[0]
    return prices.assign(**{line: known[name].astype("float64") for line, name in LINES.items()})


def feed(db: almanac.Database, prices: pd.DataFrame, coin: str, *, bar: str, **wanted: Any) -> Any:
    """Return a feed of backtrader with the lines of `LINES`."""
    import backtrader

    class EventFeed(backtrader.feeds.PandasData):  # type: ignore[misc]
        lines = tuple(LINES)
        params = tuple((line, -1) for line in LINES)

    return EventFeed(dataname=with_lines(db, prices, coin, bar=bar, **wanted))
