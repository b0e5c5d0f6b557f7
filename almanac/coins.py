"""Finds the coin that a text names: a slug, ticker, name or trading pair such as `BTC/USDT`.

Tickers are not unique, and the slug of one coin may be the ticker of another: an ambiguous text is
an error that lists the coins. In a pair, names do not count. A text that is a slug, such as
`true-usd`, is not read as a pair. `$BTC` is the ticker `BTC`. Case, surrounding white space,
invisible characters and letter width do not matter. `slug:bitcoin`, `symbol:BTC` and
`name:Bitcoin` say what the text is; with `coins_are="slug"` in `almanac.open` every text without
such a mark is a slug, with "ticker" a ticker. With `ambiguous="largest"` an ambiguous text is the
coin with the best rank at the time of the question or row.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final
from unicodedata import normalize

from almanac.core.errors import AmbiguousCoin, InvalidArgument, UnknownName
from almanac.core.statements import Statements
from almanac.reader import Ambiguous, Reader

_SQL = Statements("almanac")
PREFIXES: Final = ("slug:", "symbol:", "ticker:", "name:")
"""The marks of a coin text."""
KINDS: Final = {"slug": "slug", "ticker": "symbol"}
"""The kind of a text without a mark, by `coins_are`."""
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
    note: str = field(default="", repr=False, compare=False)
    """Why it was taken for an ambiguous text."""

    def __str__(self) -> str:
        return self.slug


LabelledCoins = Mapping[Any, str | Coin]
"""The coin of each label of the caller: a pair, a column, a number of an asset."""
_Row = dict[str, Any]


class Slugs(list[str]):
    """The slugs of a filter. `notes` say which coins were taken for ambiguous texts."""

    notes: tuple[str, ...] = ()


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
    at: datetime | None = None,
    ambiguous: Ambiguous | None = None,
) -> dict[str, Coin]:
    """Return the one coin of each text, as `find_coins`; unless strict, leave out unknown texts.

    Ranks are as of `at`, by default now; `ambiguous` is by default as the reader was opened.

    Raises:
        UnknownName, AmbiguousCoin: a text stands for no coin, or for several.
    """
    texts, at = list(wanted), at or reader.now()
    found = find_coins(reader, texts, coins)
    several = _rank_coins(reader, {t: found[t] for t in texts if len(found.get(t, ())) > 1}, at)
    unranked = {text: each for text, each in several.items() if each[0].rank is None}
    is_largest = (ambiguous or reader.ambiguous) == "largest"
    if several and (unranked or not is_largest):
        raise refuse_ambiguous_coins(unranked if is_largest else several)
    for text, (coin, *others) in several.items():
        note = f"{text!r} is read as {coin.slug} ({coin.name}), rank {coin.rank}, the best of "
        found[text] = (replace(coin, note=f"{note}{len(others) + 1} coins"),)
    return {
        text: _one(reader, text, found.get(text, ()))
        for text in texts
        if is_strict or text in found
    }


def resolve_coins(
    reader: Reader,
    wanted: str | Coin | Iterable[str | Coin],
    at: datetime | None = None,
    ambiguous: Ambiguous | None = None,
) -> list[Coin]:
    """Return the coin of each text, as `resolve_texts`; a `Coin` stands for itself.

    A text is split by `split_coins`.
    """
    if isinstance(wanted, Mapping):
        raise InvalidArgument(f"coins={wanted!r}: expected coins, such as list(coins.values())")
    if isinstance(wanted, str):
        wanted = split_coins(reader, wanted)
    if isinstance(wanted, Coin) or not isinstance(wanted, Iterable):
        wanted = [wanted]
    each = list(wanted)
    texts = [coin for coin in each if isinstance(coin, str)]
    found = resolve_texts(reader, texts, is_strict=True, at=at, ambiguous=ambiguous)
    return [found[coin] if isinstance(coin, str) else _one(reader, coin, ()) for coin in each]


def split_coins(reader: Reader, text: str) -> list[str]:
    """Return the texts between commas; a text with commas that names a coin is one."""
    if "," not in text or find_coins(reader, [text]):
        return [text]
    return [part.strip() for part in text.split(",") if part.strip()]


def resolve_slugs(
    reader: Reader,
    coins: str | Coin | Iterable[str | Coin] | None,
    at: datetime | None = None,
    ambiguous: Ambiguous | None = None,
) -> Slugs | None:
    """Return the slugs of the coins of a filter; None stays None, which selects every event."""
    if coins is None:
        return None
    found = resolve_coins(reader, coins, at, ambiguous)
    slugs = Slugs([coin.slug for coin in found])
    slugs.notes = tuple(coin.note for coin in found if coin.note)
    return slugs


def keep_ranked(
    reader: Reader, slugs: Sequence[str] | None, max_rank: int | None, at: datetime
) -> Sequence[str] | None:
    """Return those of some slugs, None for all, whose rank was from 1 to `max_rank` at a time; the
    slugs as they are if that is None."""
    if max_rank is None:
        return slugs
    rows = reader.rows(_SQL["ranked_at"], {"max_rank": max_rank, "at": at})
    return [row["coin"] for row in rows if slugs is None or row["coin"] in slugs]


def _rank_coins(
    reader: Reader, several: Mapping[str, Sequence[Coin]], at: datetime
) -> dict[str, list[Coin]]:
    """Return the coins that each text may mean, by rank at a time, those without one last."""
    slugs = [coin.slug for coins in several.values() for coin in coins]
    rows = reader.rows(_SQL["ranks_at"], {"coins": slugs, "at": at}) if several else []
    ranks = {row["coin"]: row["rank"] for row in rows}
    return {
        text: sorted(
            (replace(coin, rank=ranks.get(coin.slug)) for coin in coins),
            key=lambda coin: coin.rank or math.inf,
        )
        for text, coins in several.items()
    }


def refuse_ambiguous_coins(several: Mapping[str, Sequence[Coin]], where: str = "") -> AmbiguousCoin:
    """Return the error that texts stand for several coins each; `where` begins it."""
    each = [f"{t!r} stands for {len(c)} coins: {_listed(c, 'slug:')}" for t, c in several.items()]
    slugs = {text: f"slug:{coins[0].slug}" for text, coins in several.items()}
    pair = any(len(split_pair(text)) > 1 for text in several)
    error = AmbiguousCoin(
        f"{where}{'; '.join(each)}. Choose one, such as {next(iter(slugs.values()))!r}"
        f"{', or write the pair with a slash' if pair else ''}, or take the best rank: "
        "ambiguous='largest'",
        several,
    )
    error.add_note(f"For a column of a frame: coins={slugs}")
    return error


def _find_rows(reader: Reader, texts: list[str]) -> dict[str, list[_Row]]:
    """Return a row for each coin that a text names, else one for each that its pair may mean."""
    asked = [(text, text, False) for text in dict.fromkeys(texts)]
    asked += [(text, ticker, True) for text, *_ in asked for ticker in split_pair(text)]
    if not asked:
        return {}
    reader.prepare("_almanac_coin_labels", _SQL["coin_labels"])
    columns = zip(("wanted", "texts", "is_pair"), map(list, zip(*asked, strict=True)), strict=True)
    kind = KINDS.get(reader.coins_are, "")
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
        raise refuse_ambiguous_coins({wanted: coins})
    raise explain_unknown_coin(reader, wanted)


def explain_unknown_coin(reader: Reader, text: str, where: str = "") -> UnknownName:
    """Return the error that no coin has this name, with similar coins; `where` begins it."""
    similar = find_similar(reader, text)
    kinds = KINDS.get(reader.coins_are, "slug, symbol or name")
    name = f"{kinds} {text!r}"
    if tickers := split_pair(text):
        name = f"ticker {tickers[0]!r} of {text!r}"
    message = f"{where}no coin has the {name}. Similar: {_listed(similar) or 'none'}."
    if where:
        message += (
            f" Name the coin, by its slug: coins={{{text!r}: 'slug:…'}}, or leave its rows empty: "
            "unknown='ignore'"
        )
    return UnknownName(message, similar[:_LISTED_MAX], text)


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
    names = [
        f"{mark}{coin.slug} ({coin.name}{f', rank {coin.rank}' if mark and coin.rank else ''})"
        for coin in coins[:_LISTED_MAX]
    ]
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
