"""Finds the coin that a text names: a slug, ticker, name or trading pair such as `BTC/USDT`.

Tickers are not unique, and the slug of one coin may be the ticker of another: an ambiguous text is
an error that lists the coins. In a pair, names do not count. A text that is a slug, such as
`true-usd`, is not read as a pair. `$BTC` is the ticker `BTC`. Case, surrounding white space,
invisible characters and letter width do not matter. `slug:bitcoin`, `symbol:BTC` and
`name:Bitcoin` say what the text is; with `coins_are="slug"` in `almanac.open` every text without
such a mark is a slug.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final
from unicodedata import normalize

from almanac.core.errors import AmbiguousCoin, InvalidArgument, UnknownName
from almanac.core.statements import Statements
from almanac.reader import Reader

_SQL = Statements("almanac")
PREFIXES: Final = ("slug:", "symbol:", "ticker:", "name:")
"""The marks of a coin text."""
_LISTED_MAX: Final = 5
_LIKENESS: Final = 0.8
"""Least similarity of a suggestion, from 0 to 1. Two swapped letters in a word of seven: 0.86."""
_LEAST_LIKENESS: Final = 0.5
"""The same where no name is more alike: `btx` and `btc` have 0.67."""


@dataclass(frozen=True, slots=True)
class Coin:
    """A coin: `slug` is its unique name, `symbol` its ticker, `rank` its current rank or None."""

    slug: str
    symbol: str | None
    name: str | None
    rank: int | None

    def __str__(self) -> str:
        return self.slug


LabelledCoins = Mapping[Any, str | Coin]
"""The coin of each label of the caller: a pair, a column, a number of an asset."""
_Row = dict[str, Any]


def find_coins(
    reader: Reader, wanted: Iterable[str], coins: LabelledCoins | None = None
) -> dict[str, tuple[Coin, ...]]:
    """Return the coins that each text may mean, with one query: several if it is ambiguous.

    `coins` takes precedence: the caller's mapping from texts, or their tickers, to coins; each of
    its coins is judged alone. If every other text is a slug, and most can only be a slug, all are.
    """
    texts = list(dict.fromkeys(wanted))
    said: dict[str, str | Coin] = {}
    for text in texts if coins else ():
        for label in (text, *split_pair(text), *split_pair(text.upper())):
            if coins and label in coins:
                said.setdefault(text, coins[label])
    plain = [text for text in texts if text not in said]
    rows = _find_rows(reader, [*plain, *(each for each in said.values() if isinstance(each, str))])
    found = {text: rows[text] for text in plain if text in rows}
    if any(len(each) > 1 for each in found.values()) and _are_slugs(found, len(plain)):
        found = {text: [row for row in each if row["coin"] == text] for text, each in found.items()}
    named = {text: _read_coins(each) for text, each in found.items()}
    for text, coin in said.items():
        named[text] = (_one(reader, coin, _read_coins(rows.get(str(coin), ()))),)
    return named


def resolve_texts(
    reader: Reader,
    wanted: Iterable[str],
    coins: LabelledCoins | None = None,
    *,
    is_strict: bool,
) -> dict[str, Coin]:
    """Return the one coin of each text, as `find_coins`; unless strict, leave out unknown texts.

    Raises:
        UnknownName, AmbiguousCoin: a text stands for no coin, or for several.
    """
    texts = list(wanted)
    found = find_coins(reader, texts, coins)
    return {
        text: _one(reader, text, found.get(text, ()))
        for text in texts
        if is_strict or text in found
    }


def resolve_coins(reader: Reader, wanted: str | Coin | Iterable[str | Coin]) -> list[Coin]:
    """Return the coin of each text, as `resolve_texts`; a `Coin` stands for itself.

    A text with commas that names a coin is that coin; another one is a list of coins.
    """
    if isinstance(wanted, Mapping):
        raise InvalidArgument(f"coins={wanted!r}: expected coins, such as list(coins.values())")
    if isinstance(wanted, str) and "," in wanted and not find_coins(reader, [wanted]):
        wanted = [part for part in wanted.split(",") if part.strip()]
    if isinstance(wanted, (str, Coin)) or not isinstance(wanted, Iterable):
        wanted = [wanted]
    each = list(wanted)
    texts = [coin for coin in each if isinstance(coin, str)]
    found = resolve_texts(reader, texts, is_strict=True)
    return [found[coin] if isinstance(coin, str) else _one(reader, coin, ()) for coin in each]


def resolve_slugs(
    reader: Reader, coins: str | Coin | Iterable[str | Coin] | None
) -> list[str] | None:
    """Return the slugs of the coins of a filter; None stays None, which selects every event."""
    return None if coins is None else [coin.slug for coin in resolve_coins(reader, coins)]


def explain_ambiguous_coin(text: str, coins: Sequence[Coin]) -> str:
    """Return the message that a text stands for several coins, with what to write for each."""
    return (
        f"{text!r} stands for {len(coins)} coins: {_listed(coins, 'slug:')}. Choose one, "
        f"such as 'slug:{coins[0].slug}'"
    ) + (", or write the pair with a slash" if len(split_pair(text)) > 1 else "")


def _find_rows(reader: Reader, texts: list[str]) -> dict[str, list[_Row]]:
    """Return a row for each coin that a text names, else one for each that its pair may mean."""
    asked = [(text, text, False) for text in dict.fromkeys(texts)]
    asked += [(text, ticker, True) for text, *_ in asked for ticker in split_pair(text)]
    if not asked:
        return {}
    reader.prepare("_almanac_coin_labels", _SQL["coin_labels"])
    columns = zip(("wanted", "texts", "is_pair"), map(list, zip(*asked, strict=True)), strict=True)
    kind = "slug" if reader.coins_are == "slug" else ""
    found: dict[str, list[_Row]] = {}
    for row in reader.rows(_SQL["coins_named"], {**dict(columns), "kind": kind}):
        best = found.setdefault(row["wanted"], [row])
        if row["is_pair"] == best[0]["is_pair"] and row["coin"] not in {r["coin"] for r in best}:
            best.append(row)
    return found


def _one(reader: Reader, wanted: Any, coins: Sequence[Coin]) -> Coin:
    """Return the one coin that a text was found to be, or the `Coin` that is wanted."""
    if isinstance(wanted, Coin):
        return wanted
    if not isinstance(wanted, str):
        raise InvalidArgument(f"coin {wanted!r}: expected a text: a slug, ticker, name or pair")
    if len(coins) == 1:
        return coins[0]
    if coins:
        error = AmbiguousCoin(explain_ambiguous_coin(wanted, coins), list(coins))
        error.add_note(f"For a column of a frame: coins={{{wanted!r}: 'slug:{coins[0].slug}'}}")
        raise error
    raise explain_unknown_coin(reader, wanted)


def explain_unknown_coin(reader: Reader, text: str, where: str = "") -> UnknownName:
    """Return the error that no coin has this name, with similar coins; `where` begins it."""
    similar = find_similar(reader, text)
    kinds = "slug" if reader.coins_are == "slug" else "slug, symbol or name"
    name = f"{kinds} {text!r}"
    if tickers := split_pair(text):
        name = f"ticker {tickers[0]!r} of {text!r}"
    message = f"{where}no coin has the {name}. Similar: {_listed(similar) or 'none'}."
    if where:
        message += (
            f" Name the coin, by its slug: coins={{{text!r}: 'slug:…'}}, or leave its rows empty: "
            "unknown='ignore'"
        )
    return UnknownName(message, similar[:_LISTED_MAX])


def _are_slugs(found: dict[str, list[_Row]], count: int) -> bool:
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


def find_similar(reader: Reader, text: str) -> list[Coin]:
    """Return coins whose slug, ticker or name begins with a text or is spelled like it.

    Of a pair, the ticker counts, too. If no name is like it, these are the coins of the best ranks.
    """
    coins = reader.query(_SQL["coin_names"]).to_pylist()
    spelled: dict[str, _Row] = {}
    for row in coins:
        for name in (row["coin"], row["name"], row["symbol"]):
            spelled.setdefault((name or "").lower(), row)
    starts = [_seen(part).lower() for part in (text, *split_pair(text))]
    starts = [start.removeprefix(mark).strip() for start in starts for mark in PREFIXES]
    near = [name for name in spelled if name.startswith(tuple(filter(None, starts)))]
    for likeness in (_LIKENESS, _LEAST_LIKENESS):
        for start in dict.fromkeys(starts):
            near = near or get_close_matches(start, spelled, _LISTED_MAX, likeness)
    near = near or [(row["coin"] or "").lower() for row in coins[:_LISTED_MAX]]
    return list(_read_coins({spelled[name]["coin"]: spelled[name] for name in near}.values()))


def _read_coins(rows: Iterable[_Row]) -> tuple[Coin, ...]:
    return tuple(Coin(row["coin"], row["symbol"], row["name"], row["rank"]) for row in rows)


def _listed(coins: Sequence[Coin], mark: str = "") -> str:
    names = [f"{mark}{coin.slug} ({coin.name})" for coin in coins[:_LISTED_MAX]]
    more = len(coins) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


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
    text = _seen(text)
    if text.startswith("$"):
        return [text[1:], *split_pair(text[1:])]
    if text.lower().startswith(PREFIXES):
        return []
    if "/" in text:
        return [base] if (base := text.partition("/")[0].strip()) else []
    base, *rest = (part.strip() for part in re.split("[-_:]", re.sub(r"\.[pP]$", "", text)))
    if not rest or not base:
        return _divided(base)
    marks = [part.upper() for part in rest]
    if marks[0] in _QUOTES:
        return [base]
    if marks[0] in _DERIVATIVES:
        return [base, *_divided(base)]
    return _divided(base) if marks[0].isdigit() else []


def _seen(text: str) -> str:
    """Return a text in letters of usual width, without invisible characters and outer space."""
    return "".join(filter(str.isprintable, normalize("NFKC", text))).strip()


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
