"""freqtrade: columns of features for `populate_indicators`.

freqtrade dates a candle by its open, and acts on its row at the open of the next candle. So a row
has what was known at its date plus the timeframe, or at the next candle if that is earlier.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from bars import known_at_bars

import almanac


def add_features(
    dataframe: pd.DataFrame,
    metadata: Mapping[str, Any],
    db: almanac.Database,
    timeframe: str,
    *,
    coin: str | None = None,
    prefix: str = "",
    **wanted: Any,
) -> pd.DataFrame:
    """Return the candles of a pair with the columns of `db.features`, known at each close.

    `coin` names the coin if the ticker of the pair is not unique. Candles of months are refused.
    """
    opens = pd.DatetimeIndex(dataframe["date"])
    known = known_at_bars(db, opens, timeframe, {0: coin or metadata["pair"]}, **wanted)[0]
    return dataframe.join(known.add_prefix(prefix).set_axis(dataframe.index))
