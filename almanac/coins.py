"""Finds the coin that a text names: a slug, ticker, name or trading pair such as `BTC/USDT`.

Tickers are not unique, and the slug of one coin may be the ticker of another: an ambiguous text is
an error that lists the coins. In a pair, names do not count. A text that may be a slug, such as
`true-usd`, is never a pair.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from almanac.errors import AmbiguousCoin, InvalidArgument, UnknownName
from almanac.reader import Reader
from almanac.reading.named_sql import NamedStatements

_SQL = NamedStatements("almanac")
PREFIXES: Final = ("slug:", "symbol:", "ticker:", "name:")
"""The marks of a coin text."""
_LISTED_MAX: Final = 5
_LIKENESS: Final = 0.8
"""Least similarity of a suggestion, from 0 to 1. Two swapped letters in a word of seven: 0.86."""


@dataclass(frozen=True, slots=True)
class Coin:
    """A coin: `slug` is its unique name, `symbol` its ticker, `rank` its current rank or None."""

    slug: str
    symbol: str | None
    name: str | None
    rank: int | None

    def __str__(self) -> str:
        return self.slug


def resolve_coin(reader: Reader, wanted: str | Coin) -> Coin:
    """Return the one coin that a slug, a ticker or a name stands for, in any case.

    Surrounding white space, invisible characters and full-width letters are ignored.
    `slug:bitcoin`, `symbol:BTC` and `name:Bitcoin` say what the text is; with `coins_are="slug"` in
    `almanac.open` every text without such a mark is a slug.
    """
    if isinstance(wanted, Coin):
        return wanted
    if not isinstance(wanted, str):
        raise InvalidArgument(f"coin {wanted!r}: expected a text, a slug, ticker or name")
    if found := resolve_coins(reader, [wanted]):
        return found[wanted]
    similar = _similar(reader, wanted)
    hint = f" Similar: {_listed(similar)}." if similar else ""
    kinds = "slug" if reader.coins_are == "slug" else "slug, symbol or name"
    raise UnknownName(f"no coin has the {kinds} {wanted!r}.{hint}", similar[:_LISTED_MAX])


def resolve_coins(reader: Reader, wanted: Iterable[str]) -> dict[str, Coin]:
    """Return the coin of each text as `resolve_coin`, with one query; leave out others."""
    found = find_coins(reader, wanted)
    for text, coins in found.items():
        if len(coins) > 1:
            raise AmbiguousCoin(explain_ambiguous_coin(text, coins), list(coins))
    return {text: coins[0] for text, coins in found.items()}


def find_coins(
    reader: Reader, wanted: Iterable[str], *, by_name: bool = True
) -> dict[str, tuple[Coin, ...]]:
    """Return the coins that each text stands for, with one query: several if it is ambiguous.

    If each text is a slug, and most can only be a slug, all are taken as slugs.
    """
    import pyarrow as pa

    frame = pa.table({"wanted": pa.array(list(dict.fromkeys(wanted)), pa.string())})
    values = {"by_name": by_name, "kind": "slug" if reader.coins_are == "slug" else ""}
    found: dict[str, list[dict[str, Any]]] = {}
    for row in reader.query(
        _SQL["coins_named"], values, frames={"wanted_coins": frame}
    ).to_pylist():
        found.setdefault(row["wanted"], []).append(row)
    if any(len(rows) > 1 for rows in found.values()) and _are_slugs(found, len(frame)):
        found = {text: [row for row in rows if row["coin"] == text] for text, rows in found.items()}
    return {text: tuple(_coin(row) for row in rows) for text, rows in found.items()}


def explain_ambiguous_coin(text: str, coins: Sequence[Coin]) -> str:
    """Return the message that a text stands for several coins, with what to write for each."""
    first = f"slug:{coins[0].slug}"
    return (
        f"{text!r} stands for {len(coins)} coins: {_listed(coins, 'slug:')}. Choose one, "
        f"such as {first!r}. For a column of a frame: coins={{{text!r}: {first!r}}}. If every "
        "text is a slug: almanac.open(…, coins_are='slug')"
    )


def _are_slugs(found: dict[str, list[dict[str, Any]]], count: int) -> bool:
    """Whether the texts of one call are a list of slugs, as in other columns of this package.

    Each text is a slug, and most can only be a slug, not a ticker.
    """
    if len(found) < count:
        return False
    if not all(any(row["coin"] == text for row in rows) for text, rows in found.items()):
        return False
    plain = [
        text
        for text, rows in found.items()
        if len(rows) == 1 and (rows[0]["symbol"] or "").lower() != text
    ]
    return len(plain) > sum(len(rows) > 1 for rows in found.values())


def resolve_slugs(
    reader: Reader, coins: str | Coin | Iterable[str | Coin] | None
) -> list[str] | None:
    """Return the slugs of the coins of a filter; None stays None, which selects every event."""
    if coins is None:
        return None
    if isinstance(coins, (str, Coin)) or not isinstance(coins, Iterable):
        coins = [coins]
    wanted = list(coins)
    texts = [text for text in wanted if isinstance(text, str)]
    found = resolve_coins(reader, texts) if len(texts) > 1 else {}
    return [
        found[coin].slug
        if isinstance(coin, str) and coin in found
        else resolve_coin(reader, coin).slug
        for coin in wanted
    ]


def _similar(reader: Reader, text: str) -> list[Coin]:
    """Return coins whose slug, ticker or name begins with a text or is spelled like it."""
    coins = reader.query(_SQL["coin_names"]).to_pylist()
    spelled: dict[str, dict[str, Any]] = {}
    for row in coins:
        for name in (row["coin"], row["name"], row["symbol"]):
            spelled.setdefault((name or "").lower(), row)
    start = "".join(filter(str.isprintable, text)).strip().lower()
    near = [name for name in spelled if start and name.startswith(start)]
    near = near or get_close_matches(start, spelled, _LISTED_MAX, _LIKENESS)
    return list({spelled[name]["coin"]: _coin(spelled[name]) for name in near}.values())


def _coin(row: dict[str, Any]) -> Coin:
    return Coin(row["coin"], row["symbol"], row["name"], row["rank"])


def _listed(coins: Sequence[Coin], mark: str = "") -> str:
    names = [f"{mark}{coin.slug} ({coin.name})" for coin in coins[:_LISTED_MAX]]
    more = len(coins) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


LabelledCoins = Mapping[Any, str | Coin]
"""The coin of each label of the caller: a pair, a column, a number of an asset."""

_STABLE: Final = ("USDT", "USDC", "FDUSD")
_FIAT: Final = (
    *("USD", "BUSD", "TUSD", "DAI", "EUR", "GBP", "JPY", "KRW", "TRY", "BRL", "AUD", "CAD", "CHF"),
)
_QUOTES: Final = frozenset((*_STABLE, *_FIAT, "BTC", "XBT", "ETH", "BNB"))
_DERIVATIVES: Final = frozenset(("PERP", "SWAP", "PERPETUAL"))
_SHORT_MAX: Final = 2
"""`GUSD` and `RLUSD` are coins, and no pairs of G and of RL."""


def split_pair(text: str) -> list[str]:
    """Return the tickers that the text of a pair may mean, none if it is not a pair.

    Without a separator, the second part must be a common stable coin or currency.
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


def resolve_pairs(
    reader: Reader, wanted: Iterable[str], coins: LabelledCoins | None = None
) -> dict[str, Coin]:
    """Return the coin of each text that is a slug, ticker, name or pair; leave out the others.

    `coins` takes precedence: the caller's mapping from texts, or their tickers, to coins.
    """
    return _only(find_pairs(reader, wanted, coins))


def resolve_each_pair(reader: Reader, wanted: Iterable[str | Coin]) -> list[Coin]:
    """Return the coin of each, as `resolve_pairs`."""
    each = list(wanted)
    found = resolve_pairs(reader, [coin for coin in each if isinstance(coin, str)])
    listed = []
    for coin in each:
        if not isinstance(coin, str):
            listed.append(resolve_coin(reader, coin))
        elif coin in found:
            listed.append(found[coin])
        elif tickers := split_pair(coin):
            raise UnknownName(
                f"no coin has the ticker {tickers[0]!r} of {coin!r}. Name the coin, by its slug: "
                f"coins={{{coin!r}: 'slug:…'}}"
            )
        else:
            listed.append(resolve_coin(reader, coin))  # Raises, and names similar coins.
    return listed


def find_pairs(
    reader: Reader, wanted: Iterable[str], coins: LabelledCoins | None = None
) -> dict[str, tuple[Coin, ...]]:
    """Return the coins that each text may mean, as `resolve_pairs`: several if it is ambiguous."""
    texts = list(dict.fromkeys(wanted))
    said: dict[str, tuple[Coin, ...]] = {}
    for text in texts:
        label = next((each for each in (text, *split_pair(text)) if each in (coins or {})), None)
        if coins and label is not None:
            said[text] = (resolve_coin(reader, coins[label]),)
    return said | _found(reader, [text for text in texts if text not in said], by_name=True)


def _found(reader: Reader, texts: list[str], *, by_name: bool) -> dict[str, tuple[Coin, ...]]:
    """Return the coins of texts, else of the tickers of pairs, with two queries."""
    found = find_coins(reader, texts, by_name=by_name)
    tickers = {text: split_pair(text) for text in texts if text not in found}
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
            raise AmbiguousCoin(explain_ambiguous_pair(text, coins), list(coins))
    return {text: coins[0] for text, coins in found.items()}


def explain_ambiguous_pair(text: str, coins: Sequence[Coin]) -> str:
    several = len(split_pair(text)) > 1
    return explain_ambiguous_coin(text, coins) + (
        ". Or write the pair with a slash" if several else ""
    )


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
