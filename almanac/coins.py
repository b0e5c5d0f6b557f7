"""Coins by the names that people use: slug, ticker or name.

Belongs here: finding the one coin that a text names, or refusing to guess. Tickers are not unique:
a ticker that several coins have is an error that names them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from almanac.errors import AmbiguousCoin, InvalidArgument, UnknownName
from almanac.reader import Reader
from almanac.reading.named_sql import NamedStatements

_SQL = NamedStatements("almanac")
_LISTED_MAX: Final = 5
_LIKENESS: Final = 0.8
"""Two letters that changed places in a word of seven are 0.86."""


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
    """Return the coin that a slug, a ticker or a name stands for; case counts in slugs alone.

    Raises:
        AmbiguousCoin: several coins have this ticker, or this name.
        UnknownName: none has it; the message names similar ones.
        InvalidArgument: it is no text.
    """
    if isinstance(wanted, Coin):
        return wanted
    if not isinstance(wanted, str):
        raise InvalidArgument(f"coin {wanted!r}: expected a text, a slug, ticker or name")
    text = wanted.strip()
    found = _matches(reader, text)
    for kind in ("slug", "symbol", "name"):
        coins = [row for row in found if row["matched_by"] == kind]
        if len(coins) == 1:
            return _coin(coins[0])
        if coins:
            raise AmbiguousCoin(
                f"{wanted!r} is the {kind} of {len(coins)} coins: {_listed(coins)}. Use the slug.",
                [_coin(row) for row in coins],
            )
    similar = [row for row in found if row["matched_by"] == "prefix"] or _similar(reader, text)
    hint = f" Similar: {_listed(similar)}." if similar else ""
    raise UnknownName(f"no coin has the slug, symbol or name {wanted!r}.{hint}")


def resolve_coins(reader: Reader, wanted: Iterable[str]) -> dict[str, Coin]:
    """Return the coin of each text as `resolve_coin`, with one query; leave out what is no coin.

    Raises:
        AmbiguousCoin: several coins have a ticker or name; the message lists their slugs.
    """
    import pyarrow as pa

    texts = list(dict.fromkeys(wanted))
    frame = pa.table({"wanted": pa.array(texts, pa.string())})
    found: dict[str, list[dict[str, Any]]] = {}
    for row in reader.query(_SQL["coins_named"], frames={"wanted_coins": frame}).to_pylist():
        found.setdefault(row["wanted"], []).append(row)
    # Several coins: which of them it is, or the error, is for `resolve_coin` to say.
    return {
        text: _coin(rows[0]) if len(rows) == 1 else resolve_coin(reader, text)
        for text, rows in found.items()
    }


def resolve_each(reader: Reader, wanted: Sequence[str | Coin]) -> list[Coin]:
    """Return the coin of each as `resolve_coin`, with one query for all texts that are coins.

    Raises:
        AmbiguousCoin, UnknownName, InvalidArgument: as `resolve_coin`.
    """
    texts = [text for text in wanted if isinstance(text, str)]
    found = resolve_coins(reader, texts) if len(texts) > 1 else {}
    return [
        found[coin] if isinstance(coin, str) and coin in found else resolve_coin(reader, coin)
        for coin in wanted
    ]


def slugs_of(reader: Reader, coins: str | Coin | Iterable[str | Coin] | None) -> list[str] | None:
    """Return the slugs of the coins of a filter; None stays None, which selects every event.

    Raises:
        AmbiguousCoin, UnknownName: as `resolve_coin`.
    """
    if coins is None:
        return None
    if isinstance(coins, (str, Coin)) or not isinstance(coins, Iterable):
        coins = [coins]
    return [coin.slug for coin in resolve_each(reader, list(coins))]


def _matches(reader: Reader, text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = reader.query(_SQL["coin_matches"], {"wanted": text}).to_pylist()
    if all(row["matched_by"] == "prefix" for row in rows):
        rows = [*reader.query(_SQL["linked_coins"], {"wanted": text}).to_pylist(), *rows]
    return rows


def _similar(reader: Reader, text: str) -> list[dict[str, Any]]:
    """Return the coins with a slug, ticker or name that is spelled much like a text."""
    spelled: dict[str, dict[str, Any]] = {}
    for row in reader.query(_SQL["coin_names"]).to_pylist():
        for name in (row["coin"], row["name"], row["symbol"]):
            spelled.setdefault((name or "").lower(), row)
    near = get_close_matches(text.lower(), spelled, _LISTED_MAX, _LIKENESS)
    return list({spelled[name]["coin"]: spelled[name] for name in near}.values())


def _coin(row: dict[str, Any]) -> Coin:
    return Coin(row["coin"], row["symbol"], row["name"], row["rank"])


def _listed(rows: list[dict[str, Any]]) -> str:
    names = [f"{row['coin']} ({row['name']})" for row in rows[:_LISTED_MAX]]
    more = len(rows) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
