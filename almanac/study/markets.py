"""The market of each coin: one for all, one per coin, or the mean of the other coins.

Belongs here: which market belongs to which column of the prices. Does not: reading a series
(prices), returns (returns).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from almanac.errors import InvalidArgument
from almanac.reader import Reader
from almanac.study.named_coins import NamedCoins, name_coins
from almanac.study.prices import Floats, Integers, Prices, Stamp, read_market

_OTHERS = "the equal-weighted mean of the other coins in the prices"


@dataclass(frozen=True, slots=True)
class Markets:
    """Markets that were given.

    Attributes:
        closes: their closes, `[market, bar]`; None if there are none.
        of_coin: the place of the market of each column of the prices; -1 is the mean of the others.
        names: what each is called.
        text: all of them in words.
    """

    closes: Floats | None = None
    of_coin: Integers | None = None
    names: tuple[str, ...] = ()
    text: str = _OTHERS


def read_markets(
    reader: Reader, given: Any, prices: Prices, said: NamedCoins, stamp: Stamp
) -> Markets:
    """Return the market of each column of the prices.

    `given` is a market as `read_market` takes it, None, or a mapping from coins to these.

    Raises:
        InvalidArgument: a market can't be read, a coin of the mapping has no prices, or the prices
            have one coin and no market.
    """
    is_each = isinstance(given, Mapping) and not isinstance(given.get("prices"), list)
    # Names are looked up only if there are any.
    columns = _columns(reader, prices, said) if is_each or isinstance(given, str) else {}
    of_coin = np.full(len(prices.coins), -1, np.int64)
    closes: list[Floats] = []
    names: list[str] = []
    seen: dict[Any, int] = {}
    for coin, market in given.items() if is_each else [(None, given)]:
        if market is None:
            continue
        key = market if isinstance(market, str) else id(market)
        if key not in seen:
            seen[key] = len(closes)
            found = _in_prices(reader, market, prices, columns, said)
            closes.append(read_market(found, prices, stamp=stamp, tz=reader.tz))
            names.append("market" if coin is None else f"market of {coin}")
        of_coin[slice(None) if coin is None else _column(reader, coin, columns, said)] = seen[key]
    if (of_coin < 0).any() and len(prices.coins) == 1:
        raise InvalidArgument(
            "the prices have one coin, and its market would be the mean of the other coins; give a "
            "market=, such as a Series of prices, or use model='mean'"
        )
    text = _OTHERS
    if is_each:
        text = f"one per coin for {int((of_coin >= 0).sum())} coins; for the others {_OTHERS}"
    elif given is not None:
        text = given if isinstance(given, str) else "a series that was given"
    return Markets(np.stack(closes) if closes else None, of_coin, tuple(names), text)


def _columns(reader: Reader, prices: Prices, said: NamedCoins) -> dict[str, int]:
    """Return the columns of the prices by their names, and by the slugs of their coins."""
    slugs = name_coins(reader, prices.coins, said).slugs
    by_slug = {slugs[name]: place for place, name in enumerate(prices.coins) if name in slugs}
    return by_slug | {name: place for place, name in enumerate(prices.coins)}


def _in_prices(
    reader: Reader, market: Any, prices: Prices, columns: dict[str, int], said: NamedCoins
) -> Any:
    """Return the name that the prices have for a coin, or the market as it was given."""
    if not isinstance(market, str) or market in prices.coins or Path(market).is_file():
        return market
    slug = name_coins(reader, [market], said).slugs.get(market)
    return prices.coins[columns[slug]] if slug in columns else market


def _column(reader: Reader, coin: Any, columns: dict[str, int], said: NamedCoins) -> int:
    text = str(coin)
    if text not in columns:
        text = name_coins(reader, [text], said).slugs.get(text, text)
    if text not in columns:
        raise InvalidArgument(
            f"market: the coin {str(coin)!r} has no prices; expected one that has"
        )
    return columns[text]
