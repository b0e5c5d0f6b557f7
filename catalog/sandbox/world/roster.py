"""The coins of the synthetic catalog: when each is listed and tracked, and its rank on a day.

Ranks sync daily at 00:00 UTC. Some coins that are no longer tracked are delisted, most of them for
days or weeks, again and again. The list begins with well-known coins; the other coins are invented.
`known_coins.txt` has a line for each well-known coin, in the order of its usual rank: slug, symbol,
month of first trading, name. The month is `-` if it was before the catalog begins (October 2016).
`wording.json` has the parts of invented names.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from catalog.sandbox.world.dates import day_number

COINS = 3_200
UNRANKED_SHARE = 0.065
NEVER_TRACKED_SHARE = 0.06
DROPPED_SHARE = 0.16
"""Share of the tracked coins that are no longer tracked from some day on."""
TICKER_COPIES = 0.09
"""Share of the invented coins that have the ticker of another coin."""

_KNOWN = Path(__file__).with_name("known_coins.txt")
_WORDING = _KNOWN.with_name("wording.json")


KNOWN_COINS = tuple(line.split(" ", 3) for line in _KNOWN.read_text("utf-8").splitlines())
"""Slug, symbol, month of first trading and name of each well-known coin."""
ALWAYS = day_number(2010, 1)
NEVER = day_number(9999, 1)


_WORDS: dict[str, tuple[str, ...]] = {
    kind: tuple(words.split())
    for kind, words in json.loads(_WORDING.read_text("utf-8"))["coins"].items()
}
_WORDS["memes"] = ("Baby {}", "{} Inu", "{} Coin", "{} AI", "Super {}", "{} Wif Scarf", "{}verse")


@dataclass(frozen=True, slots=True)
class ListedCoin:
    """One coin for all time. Days are numbered from 1970; `base` is None for an unranked coin."""

    slug: str
    symbol: str
    name: str
    base: float | None
    wander_days: int
    phase: float
    listed_on: int
    untracked_from: int
    delisted: tuple[int, int, int] = (NEVER, 1, 1)
    """From the first day on, it is not listed in each period, for the last number of days."""

    @property
    def icon_url(self) -> str:
        return f"https://icons.example/coins/{self.slug}.png"

    def listed_at(self, day: int) -> bool:
        first, period, days = self.delisted
        return self.listed_on <= day and (day < first or (day - first) % period >= days)

    def tracked_on(self, day: int) -> bool:
        """Return whether new events of the coin are announced on a day."""
        return self.listed_on <= day < self.untracked_from


class Roster:
    """All coins of a seed, the higher ranked first, as they were listed, tracked and ranked."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        coins = _coins(Random(f"{seed}/coins"))
        self.coins = tuple(_delist(coins, Random(f"{seed}/delistings")))
        self.by_slug = {coin.slug: coin for coin in self.coins}

    def tracked_throughout(self, first_day: int, last_day: int) -> list[ListedCoin]:
        """Return the coins tracked from one day to another, the higher ranked first."""
        return [
            coin
            for coin in self.coins
            if coin.listed_on <= first_day and coin.untracked_from > last_day
        ]

    def ranking(self, day: int) -> list[tuple[ListedCoin, int | None]]:
        """Return the coins listed by a day with their rank, unranked ones last and by slug."""
        r = Random(f"{self.seed}/ranks/{day}").random
        scored: list[tuple[float, str, ListedCoin]] = []
        unranked: list[tuple[ListedCoin, int | None]] = []
        for coin in self.coins:
            jitter = r()
            if not coin.listed_at(day):
                continue
            if coin.base is None:
                unranked.append((coin, None))
                continue
            swing = 4 * abs((day / coin.wander_days + coin.phase) % 1 - 0.5) - 1
            score = coin.base * (1 + 0.2 * swing) * (0.98 + 0.04 * jitter)
            scored.append((score, coin.slug, coin))
        scored.sort()
        ranked: list[tuple[ListedCoin, int | None]] = [
            (coin, rank) for rank, (_, _, coin) in enumerate(scored, start=1)
        ]
        return ranked + sorted(unranked, key=lambda pair: pair[0].slug)


def _coins(rng: Random) -> Iterator[ListedCoin]:
    r = rng.random
    slugs: set[str] = set()
    symbols: list[str] = []
    base: float | None
    for place in range(COINS):
        if place < len(KNOWN_COINS):
            slug, symbol, month, name = KNOWN_COINS[place]
            base, listed_on = place + 1.0, ALWAYS
            if month != "-":
                year, number = map(int, month.split("-"))
                listed_on = day_number(year, number, 1 + int(r() * 28))
        else:
            name = _name(r)
            slug = _slug(name, slugs)
            symbol = _symbol(name, symbols, r)
            base = None if r() < UNRANKED_SHARE else place + 1.0
            listed_on = _listing_day(r)
        slugs.add(slug)
        symbols.append(symbol)
        untracked_from = _untracking_day(listed_on, r) if place >= 60 else NEVER
        yield ListedCoin(
            slug, symbol, name, base, 240 + int(r() * 900), r(), listed_on, untracked_from
        )


def _delist(coins: Iterator[ListedCoin], rng: Random) -> Iterator[ListedCoin]:
    """Yield the coins; those that get no new events are delisted for some days of a period."""
    for coin in coins:
        first = max(coin.untracked_from, coin.listed_on, day_number(2018, 1)) + rng.randrange(1_500)
        period = rng.randrange(40, 400)
        days = period if rng.random() < 0.1 else rng.randrange(1, 30)
        yield replace(coin, delisted=(first, period, days))


def _name(r: Callable[[], float]) -> str:
    form = r()
    if form < 0.16:
        return _pick("memes", r).format(_pick("animals", r))
    if form < 0.42:
        return f"{_pick('first', r)} {_pick('second', r)}"
    stem = _pick("heads", r) + _pick("tails", r)
    return stem if form < 0.66 else f"{stem} {_pick('kinds', r)}"


def _slug(name: str, taken: set[str]) -> str:
    stem = name.lower().replace(" ", "-")
    slug, number = stem, 2
    while slug in taken:
        slug, number = f"{stem}-{number}", number + 1
    return slug


def _symbol(name: str, others: list[str], r: Callable[[], float]) -> str:
    if r() < TICKER_COPIES:
        return others[int(r() * len(others))]
    words = name.split()
    letters = "".join(words).lower()
    if len(words) > 1 and r() < 0.4:
        letters = words[0][:2].lower() + "".join(word[:2] for word in words[1:]).lower()
    elif r() < 0.5:
        letters = letters[0] + "".join(letter for letter in letters[1:] if letter not in "aeiou ")
    symbol = letters[: 3 + int(r() * 3)]
    return symbol.upper() if r() < 0.25 else symbol


def _listing_day(r: Callable[[], float]) -> int:
    era, within = r(), r()
    if era < 0.28:
        return ALWAYS
    first, last = (day_number(2017, 1), day_number(2026, 9))
    if era > 0.985:
        first, last = last, day_number(2030, 1)
    return first + int(within * (last - first))


def _untracking_day(listed_on: int, r: Callable[[], float]) -> int:
    chance, within = r(), r()
    if chance < NEVER_TRACKED_SHARE:
        return ALWAYS
    if chance > NEVER_TRACKED_SHARE + DROPPED_SHARE:
        return NEVER
    first = max(listed_on, day_number(2017, 6)) + 200
    return first + int(within * max(day_number(2033, 1) - first, 400))


def _pick(kind: str, r: Callable[[], float]) -> str:
    words = _WORDS[kind]
    return words[int(r() * len(words))]
