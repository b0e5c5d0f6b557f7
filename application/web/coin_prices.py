"""Prices of the user's file for the pages of coins."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from math import isnan
from pathlib import Path
from typing import Final

import numpy as np

from almanac.coins import resolve_texts
from almanac.core.timestamps import ORIGIN, US
from almanac.reader import Reader
from almanac.study.prices import Prices, read_prices

_DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, eq=False, slots=True)
class CoinPrices:
    """Prices on bars, and the column of each coin by its slug."""

    prices: Prices
    columns: Mapping[str, int]

    def list_daily(
        self, coin: str, since: datetime, until: datetime
    ) -> list[tuple[datetime, float]]:
        """Return the last price of each UTC day with the end of its bar, of the bars that ended
        from `since` to `until`."""
        if coin not in self.columns:
            return []
        starts, bar_us = self.prices.starts, self.prices.bar_us
        bounds = [(since - ORIGIN) // US - 1, (until - ORIGIN) // US]
        first, last = np.searchsorted(starts + bar_us, bounds, side="right")
        closes = self.prices.close[first:last, self.columns[coin]]
        bars = zip(starts[first:last].tolist(), closes.tolist(), strict=True)
        days = {start // _DAY_US: (start, close) for start, close in bars if not isnan(close)}
        return [(ORIGIN + (start + bar_us) * US, close) for start, close in days.values()]


def read_coin_prices(path: Path, reader: Reader) -> CoinPrices:
    """Return the prices of a Parquet or CSV file in a layout of `read_prices`. A column whose name
    is not of a coin is left out.

    Raises:
        InvalidArgument: the file can't be read.
        AmbiguousCoin: a name means several coins.
    """
    prices = read_prices(path, now=reader.now())
    with reader.pinned():
        found = resolve_texts(reader, prices.coins, is_strict=False)
    slugs = {coin.slug: prices.coins.index(name) for name, coin in found.items()}
    return CoinPrices(prices, slugs)
