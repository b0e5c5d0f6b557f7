"""Coins by the names that people use: slug, ticker or name.

Belongs here: finding the one coin that a text names, or refusing to guess. Tickers are not unique,
and the slug of one coin may be the ticker of another: such a text is an error that lists them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from almanac.errors import AmbiguousCoin, InvalidArgument, UnknownName
from almanac.reader import Reader
from almanac.reading.named_sql import NamedStatements

_SQL = NamedStatements("almanac")
PREFIXES: Final = ("slug:", "symbol:", "ticker:", "name:")
"""What says what the text of a coin is."""
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


def resolve_coin(reader: Reader, wanted: str | Coin, *, by_name: bool = True) -> Coin:
    """Return the one coin that a slug, a ticker or a name stands for, in any case.

    White space around it, invisible characters and the width of letters do not count.
    `slug:bitcoin`, `symbol:BTC` and `name:Bitcoin` say what the text is; with `coins_are="slug"` in
    `almanac.open` every text without such a mark is a slug.

    Args:
        by_name: whether names count, too.

    Raises:
        AmbiguousCoin: the text stands for several coins: the slug of one coin may be the ticker of
            another. The message lists them as `slug:…`.
        UnknownName: none has it; the message names similar ones.
        InvalidArgument: it is no text.
    """
    if isinstance(wanted, Coin):
        return wanted
    if not isinstance(wanted, str):
        raise InvalidArgument(f"coin {wanted!r}: expected a text, a slug, ticker or name")
    if found := resolve_coins(reader, [wanted], by_name=by_name):
        return found[wanted]
    similar = _similar(reader, wanted)
    hint = f" Similar: {_listed(similar)}." if similar else ""
    kinds = "slug" if reader.coins_are == "slug" else "slug, symbol or name"
    raise UnknownName(f"no coin has the {kinds} {wanted!r}.{hint}")


def resolve_coins(
    reader: Reader, wanted: Iterable[str], *, by_name: bool = True
) -> dict[str, Coin]:
    """Return the coin of each text as `resolve_coin`, with one query; leave out what is no coin.

    Raises:
        AmbiguousCoin: a text stands for several coins; the message lists their slugs.
    """
    found = find_coins(reader, wanted, by_name=by_name)
    for text, coins in found.items():
        if len(coins) > 1:
            raise AmbiguousCoin(in_words(text, coins), list(coins))
    return {text: coins[0] for text, coins in found.items()}


def find_coins(
    reader: Reader, wanted: Iterable[str], *, by_name: bool = True
) -> dict[str, tuple[Coin, ...]]:
    """Return the coins that each text stands for, with one query: several if it is ambiguous.

    If each is a slug as it is written, and most of them can be nothing else, all are slugs.
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


def in_words(text: str, coins: Sequence[Coin]) -> str:
    """Return the message that a text stands for several coins, with what to write for each."""
    first = f"slug:{coins[0].slug}"
    listed = ", ".join(f"slug:{coin.slug} ({coin.name})" for coin in coins[:_LISTED_MAX])
    more = f" and {len(coins) - _LISTED_MAX} more" if len(coins) > _LISTED_MAX else ""
    return (
        f"{text!r} stands for {len(coins)} coins: {listed}{more}. Choose one, "
        f"such as {first!r}. For a column of a frame: coins={{{text!r}: {first!r}}}. If every "
        "text is a slug: almanac.open(…, coins_are='slug')"
    )


def _are_slugs(found: dict[str, list[dict[str, Any]]], count: int) -> bool:
    """Whether texts that are asked together are a list of slugs, as other columns here have them.

    Each of them is a slug as it is written, and most of them can be nothing else: no ticker.
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


def _similar(reader: Reader, text: str) -> list[Coin]:
    """Return coins with a slug, ticker or name that begins as a text, or is spelled like it."""
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


def _listed(coins: Sequence[Coin]) -> str:
    names = [f"{coin.slug} ({coin.name})" for coin in coins[:_LISTED_MAX]]
    more = len(coins) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
