"""Coins by the pairs that people trade: `BTC/USDT`, `BTC-USD`, `BTCUSDT`, `BTC/USDT:USDT`.

Belongs here: the ticker in the text of a pair, and the coin of it. Does not: slugs, tickers and
names (coins). A name of a coin never counts in a pair. A text that may be a slug, such as
`true-usd`, is never a pair, since a slug that nobody knows would become another coin.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from almanac.coins import PREFIXES, Coin, find_coins, in_words, resolve_coin
from almanac.errors import AmbiguousCoin, UnknownName
from almanac.reader import Reader

Coins = Mapping[Any, str | Coin]
"""The coin of each label of the caller: a pair, a column, a number of an asset."""

_STABLE: Final = ("USDT", "USDC", "FDUSD")
_FIAT: Final = (
    *("USD", "BUSD", "TUSD", "DAI", "EUR", "GBP", "JPY", "KRW", "TRY", "BRL", "AUD", "CAD", "CHF"),
)
_QUOTES: Final = frozenset((*_STABLE, *_FIAT, "BTC", "XBT", "ETH", "BNB"))
_DERIVATIVES: Final = frozenset(("PERP", "SWAP", "PERPETUAL"))
_SHORT_MAX: Final = 2
"""`GUSD` and `RLUSD` are coins, and no pairs of G and of RL."""


def tickers_of_pair(text: str) -> list[str]:
    """Return the tickers that the text of a pair may mean, none if it is no pair.

    Without a mark between them, the second part is one of the common stable coins and currencies.
    `ETHBTC` is not divided: `WBTC` is a coin.
    """
    text = text.strip()
    if text.lower().startswith(PREFIXES):
        return []
    if "/" in text:
        return [base] if (base := text.partition("/")[0].strip()) else []
    base, *rest = (part.strip() for part in re.split("[-_:]", text.removesuffix(".P")))
    if not rest or not base:
        return _divided(base)
    if "-" in text and text == text.lower():
        return []
    marks = [part.upper() for part in rest]
    if marks[0] in _QUOTES:
        return [base]
    if marks[0] in _DERIVATIVES:
        return [base, *_divided(base)]
    return _divided(base) if marks[0].isdigit() else []


def resolve_pair(reader: Reader, text: str, coins: Coins | None = None) -> Coin:
    """Return the coin of a pair, a ticker or a slug. `coins` goes first: what the caller names.

    Raises:
        AmbiguousCoin: several coins have the ticker.
        UnknownName: none has it. A coin whose name, not ticker, is this text does not count.
    """
    if coins and (label := named_label(text, coins)) is not None:
        return resolve_coin(reader, coins[label])
    if found := _only(_found(reader, [text], by_name=False)):
        return found[text]
    ticker = (tickers_of_pair(text) or [text])[0]
    raise UnknownName(
        f"no coin has the ticker {ticker!r} of {text!r}. Name the coin, by its slug: "
        f"coins={{{text!r}: 'slug:…'}}"
    )


def resolve_pairs(
    reader: Reader, wanted: Iterable[str], coins: Coins | None = None
) -> dict[str, Coin]:
    """Return the coin of each text that is a slug, ticker, name or pair; leave out the others.

    `coins` goes first: the coins of texts, or of their tickers, that the caller names.

    Raises:
        AmbiguousCoin: several coins have a ticker or name; the message lists their slugs.
        UnknownName: a coin that the caller names does not exist.
    """
    return _only(find_pairs(reader, wanted, coins))


def resolve_each_pair(
    reader: Reader, wanted: Iterable[str | Coin], coins: Coins | None = None
) -> list[Coin]:
    """Return the coin of each, as `resolve_pairs`.

    Raises:
        AmbiguousCoin, UnknownName, InvalidArgument: one is not one coin.
    """
    each = list(wanted)
    found = resolve_pairs(reader, [coin for coin in each if isinstance(coin, str)], coins)
    listed = []
    for coin in each:
        if not isinstance(coin, str):
            listed.append(resolve_coin(reader, coin))
        elif coin in found:
            listed.append(found[coin])
        elif tickers_of_pair(coin):
            listed.append(resolve_pair(reader, coin))  # Raises, and names the ticker.
        else:
            listed.append(resolve_coin(reader, coin))  # Raises, and names similar coins.
    return listed


def find_pairs(
    reader: Reader, wanted: Iterable[str], coins: Coins | None = None
) -> dict[str, tuple[Coin, ...]]:
    """Return the coins that each text may mean, as `resolve_pairs`: several if it is ambiguous.

    Raises:
        AmbiguousCoin, UnknownName: a coin that the caller names is not one coin.
    """
    texts = list(dict.fromkeys(wanted))
    labels = {text: named_label(text, coins) for text in texts} if coins else {}
    said = {
        text: (resolve_coin(reader, coins[label]),)
        for text, label in labels.items()
        if coins and label is not None
    }
    return said | _found(reader, [text for text in texts if text not in said], by_name=True)


def named_label(text: str, coins: Coins) -> str | None:
    """Return the label under which the caller names the coin of a text, None if there is none."""
    return next((label for label in (text, *tickers_of_pair(text)) if label in coins), None)


def _found(reader: Reader, texts: list[str], *, by_name: bool) -> dict[str, tuple[Coin, ...]]:
    """Return the coins of texts, else of the tickers of pairs, with two queries."""
    found = find_coins(reader, texts, by_name=by_name)
    tickers = {text: tickers_of_pair(text) for text in texts if text not in found}
    asked = [ticker for each in tickers.values() for ticker in each]
    of_ticker = find_coins(reader, asked, by_name=False) if asked else {}
    for text, each in tickers.items():
        coins = {coin.slug: coin for ticker in each for coin in of_ticker.get(ticker, ())}
        if coins:
            found[text] = tuple(coins.values())
    return found


def _only(found: Mapping[str, tuple[Coin, ...]]) -> dict[str, Coin]:
    for text, coins in found.items():
        if len(coins) > 1:
            raise AmbiguousCoin(pair_in_words(text, coins), list(coins))
    return {text: coins[0] for text, coins in found.items()}


def pair_in_words(text: str, coins: Sequence[Coin]) -> str:
    """Return the message that a text stands for several coins."""
    several = len(tickers_of_pair(text)) > 1
    return in_words(text, coins) + (". Or write the pair with a slash" if several else "")


def _divided(text: str) -> list[str]:
    """Return the tickers before each quote at the end of a text without a mark, as `BTCUSDT`."""
    text = text.upper()
    bases = [text.removesuffix(quote) for quote in _STABLE if text.endswith(quote)]
    bases += [
        base
        for quote in _FIAT
        if text.endswith(quote) and len(base := text.removesuffix(quote)) > _SHORT_MAX
    ]
    return [base for base in dict.fromkeys(bases) if base]
