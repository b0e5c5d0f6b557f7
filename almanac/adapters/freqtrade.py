"""freqtrade: columns of features for `populate_indicators`.

    def populate_indicators(self, dataframe, metadata):
        with almanac.open(HOME) as db:
            return add_features(dataframe, metadata, db, timeframe=self.timeframe)

freqtrade dates a candle by its open, and acts on its row at the open of the next candle. So a row
has what was known at its date plus the timeframe. freqtrade itself is not imported.
"""

import re
from collections.abc import Hashable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Unpack

from almanac.adapters.bars import INSTANT, FeatureOptions, coin_of_pair, features_of
from almanac.coins import LabelledCoins
from almanac.errors import InvalidArgument

if TYPE_CHECKING:
    import pandas as pd

    from almanac.database import Database

_TIMEFRAME: Final = re.compile(r"([1-9]\d*)([smhdwMy])")
_LENGTHS: Final = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_MONTHS: Final = {"M": 1, "y": 12}


def add_features(
    dataframe: "pd.DataFrame",
    metadata: Mapping[str, Any],
    db: "Database",
    timeframe: str,
    *,
    coins: LabelledCoins | None = None,
    prefix: str = "",
    **wanted: Unpack[FeatureOptions],
) -> "pd.DataFrame":
    """Return the frame of a pair with the columns of `Database.features`, known at each close.

    Args:
        dataframe: the candles, with the column `date`, the open of each. It is not changed.
        metadata: as freqtrade gives it; its `pair` names the coin.
        timeframe: of the candles, such as `5m`, `4h`, `1d`, `1M`: `self.timeframe`.
        coins: the coins of pairs or tickers that are not unique, such as `{"LUNA": "terra-luna"}`.
        prefix: before the names of the new columns, for a frame that has columns of these names.
        wanted: `horizon`, `categories` and `min_impact`, as in `Database.features`.

    Raises:
        InvalidArgument: an argument is wrong, or the frame has a column of the name of a new one.
        AmbiguousCoin, UnknownName: the coin of the pair; name it in `coins`.
    """
    import pandas as pd

    if "date" not in dataframe.columns:
        raise InvalidArgument("the dataframe has no column 'date'; expected freqtrade's candles")
    opens = pd.DatetimeIndex(dataframe["date"])
    pair = str(metadata["pair"])
    coin = {pair: coin_of_pair(db, pair, coins)}
    length, months = length_of(timeframe)
    if months:
        found = _of_months(db, opens, months, coin, **wanted)[pair]
    else:
        found = features_of(db, opens, length, coin, **wanted)[pair]
    added = found.add_prefix(prefix).set_axis(dataframe.index)
    twice = [name for name in added.columns if name in dataframe.columns]
    if twice:
        raise InvalidArgument(
            f"the dataframe has the column {twice[0]!r} already; name another prefix, such as "
            "prefix='almanac_'"
        )
    return pd.concat([dataframe, added], axis=1)


def length_of(timeframe: str) -> tuple[timedelta, int]:
    """Return the length of a timeframe of freqtrade, and its months, of which one is zero.

    Here `1m` is a minute and `1M` a month.

    Raises:
        InvalidArgument: it is not a timeframe.
    """
    found = _TIMEFRAME.fullmatch(timeframe)
    if found is None:
        raise InvalidArgument(
            f"timeframe={timeframe!r}; expected one of freqtrade's, such as 5m, 4h, 1d, 1w or 1M"
        )
    count, unit = int(found[1]), found[2]
    return count * _LENGTHS.get(unit, timedelta(0)), count * _MONTHS.get(unit, 0)


def _of_months(
    db: "Database",
    opens: "pd.DatetimeIndex",
    months: int,
    coin: LabelledCoins,
    **wanted: Unpack[FeatureOptions],
) -> "dict[Hashable, pd.DataFrame]":
    """Return the features of candles of months, known at each close, as for candles of a fixed
    length.

    Months have no fixed length: each close is a timestamp of its own, and the candle that is still
    running is one of its own length.
    """
    import pandas as pd

    closes = opens + pd.DateOffset(months=months)
    aware = closes.tz_localize(db.reader.tz) if closes.tz is None else closes
    is_over = aware <= pd.Timestamp(db.reader.now())
    found = features_of(db, closes[is_over], INSTANT, coin, as_of="bar_open", **wanted)
    for place in (~is_over).nonzero()[0]:
        length = (closes[place] - opens[place]).to_pytimedelta()
        running = features_of(db, opens[place : place + 1], length, coin, **wanted)
        found = {pair: pd.concat([frame, running[pair]]) for pair, frame in found.items()}
    return found
