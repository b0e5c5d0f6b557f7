"""Coins by the pairs that people trade: `BTC/USDT`, `BTC-USD`, `BTCUSDT`, `BTC/USDT:USDT`.

Belongs here: the ticker in the text of a pair, and the coin of it. Does not: slugs, tickers and
names (coins). A name of a coin never counts in a pair. A text that may be a slug, such as
`true-usd`, is never a pair, since a slug that nobody knows would become another coin.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from almanac.coins import PREFIXES, Coin, resolve_coin, resolve_coins
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
    tickers = tickers_of_pair(text)
    if coins and (label := named_label(text, coins)) is not None:
        return resolve_coin(reader, coins[label])
    if "/" not in text and (whole := _resolving(reader)(text)) is not None:
        return whole
    found = _coin_of(text, tickers, _resolving(reader))
    if found is None:
        raise UnknownName(
            f"no coin has the ticker {(tickers or [text])[0]!r} of {text!r}. Name the coin, by its "
            f"slug: coins={{{text!r}: …}}"
        )
    return found


def resolve_pairs(
    reader: Reader, wanted: Iterable[str], coins: Coins | None = None
) -> dict[str, Coin]:
    """Return the coin of each text that is a slug, ticker, name or pair; leave out the others.

    `coins` goes first: the coins of texts, or of their tickers, that the caller names.

    Raises:
        AmbiguousCoin: several coins have a ticker or name; the message lists their slugs.
        UnknownName: a coin that the caller names does not exist.
    """
    texts = list(dict.fromkeys(wanted))
    labels = {text: named_label(text, coins) for text in texts} if coins else {}
    said = {t: resolve_coin(reader, coins[n]) for t, n in labels.items() if coins and n is not None}
    texts = [text for text in texts if text not in said]
    found = said | resolve_coins(reader, texts)
    tickers = {text: tickers_of_pair(text) for text in texts if text not in found}
    resolve = _resolving(reader, [ticker for each in tickers.values() for ticker in each])
    for text, each in tickers.items():
        if (coin := _coin_of(text, each, resolve)) is not None:
            found[text] = coin
    return found


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


def find_pairs(reader: Reader, wanted: Iterable[str]) -> dict[str, tuple[Coin, ...]]:
    """Return the coins that each text may mean, as `resolve_pairs`: several if it is ambiguous."""
    texts = list(dict.fromkeys(wanted))
    try:
        return {text: (coin,) for text, coin in resolve_pairs(reader, texts).items()}
    except AmbiguousCoin as error:
        if len(texts) == 1:
            return {texts[0]: error.coins}
    half = len(texts) // 2
    return find_pairs(reader, texts[:half]) | find_pairs(reader, texts[half:])


def named_label(text: str, coins: Coins) -> str | None:
    """Return the label under which the caller names the coin of a text, None if there is none."""
    return next((label for label in (text, *tickers_of_pair(text)) if label in coins), None)


_Resolve = Callable[[str], Coin | None]


def _resolving(reader: Reader, texts: Iterable[str] = ()) -> _Resolve:
    """Return a function that returns the coin of a slug or ticker, of these without a query each.

    It raises AmbiguousCoin.
    """
    try:
        known = resolve_coins(reader, texts, by_name=False)
    except AmbiguousCoin:
        known, texts = {}, ()  # Which text is ambiguous, and whether it is wanted, shows below.
    asked = frozenset(texts)

    def resolve(text: str) -> Coin | None:
        if text in asked:
            return known.get(text)
        try:
            return resolve_coin(reader, text, by_name=False)
        except UnknownName:
            return None

    return resolve


def _coin_of(text: str, tickers: Iterable[str], resolve: _Resolve) -> Coin | None:
    coins = {coin.slug: coin for ticker in tickers if (coin := resolve(ticker))}
    if len(coins) > 1:
        raise AmbiguousCoin(
            f"{text!r} is a pair of {' or of '.join(coins)}. Write the pair with a slash, or use "
            "the slug.",
            list(coins.values()),
        )
    return next(iter(coins.values()), None)


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
