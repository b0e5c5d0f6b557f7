"""The three workloads, drawn with a fixed seed: a page of events, one event, a coin search."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, TypeVar

from bench.server.rows import Key, PlainRows, Rows

PAGE_LIMIT: Final = 50
_DRAW_SEED: Final = 7
_FIRST_DAY: Final = date(2017, 1, 1)
_DAYS: Final = (date(2027, 6, 30) - _FIRST_DAY).days
_RANGE_DAYS: Final = (1, 365)
_FILTERED_RANGE_DAYS: Final = (30, 1_000)


@dataclass(frozen=True, slots=True)
class EventsPage:
    """Days `YYYY-MM-DD`, inclusive. At most one of coins and categories is given."""

    lower: str
    upper: str
    coins: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    after: Key | None = None


@dataclass(frozen=True, slots=True)
class SingleEvent:
    id: str


@dataclass(frozen=True, slots=True)
class CoinSearch:
    """`q` is lower case."""

    q: str
    limit: int


WorkRequest = EventsPage | SingleEvent | CoinSearch
RequestT = TypeVar("RequestT", bound=WorkRequest)


def draw_workloads(rows: Rows, count: int) -> dict[str, Sequence[WorkRequest]]:
    """Return `count` distinct requests of each kind, by its name."""
    draw, plain = random.Random(_DRAW_SEED), PlainRows(rows)
    slugs = [coin["slug"] for event in rows.events for coin in event["coins"]]
    words = [text.casefold() for coin in rows.coins for text in (coin["name"], coin["symbol"])]
    ids = draw.sample([event["id"] for event in rows.events], count)
    return {
        "page of events": _draw_distinct(count, lambda: _draw_page(draw, plain, slugs)),
        "one event": [SingleEvent(event_id) for event_id in ids],
        "coin search": _draw_distinct(count, lambda: _draw_search(draw, words)),
    }


def _draw_page(draw: random.Random, plain: PlainRows, slugs: Sequence[str]) -> EventsPage:
    """Half are plain ranges, 15 % with coins, 15 % with categories, 20 % second pages."""
    kind = draw.random()
    if kind < 0.50:
        return EventsPage(*_draw_range(draw, _RANGE_DAYS))
    if kind < 0.65:
        coins = tuple(dict.fromkeys(draw.choices(slugs, k=draw.randint(1, 5))))
        return EventsPage(*_draw_range(draw, _FILTERED_RANGE_DAYS), coins=coins)
    if kind < 0.80:
        categories = tuple(draw.sample(sorted(plain.by_category), k=draw.randint(1, 2)))
        return EventsPage(*_draw_range(draw, _FILTERED_RANGE_DAYS), categories=categories)
    while True:
        lower, upper = _draw_range(draw, _RANGE_DAYS)
        if (after := plain.find_page(lower, upper, limit=PAGE_LIMIT).after) is not None:
            return EventsPage(lower, upper, after=after)


def _draw_range(draw: random.Random, days: tuple[int, int]) -> tuple[str, str]:
    lower = _FIRST_DAY + timedelta(days=draw.randint(0, _DAYS))
    return lower.isoformat(), (lower + timedelta(days=draw.randint(*days) - 1)).isoformat()


def _draw_search(draw: random.Random, words: Sequence[str]) -> CoinSearch:
    word = draw.choice(words)
    begin = draw.randint(0, max(0, len(word) - 2))
    q = word[begin : begin + draw.randint(2, 5)].strip()
    return CoinSearch(q or word, draw.randint(10, 100))


def _draw_distinct(count: int, make: Callable[[], RequestT]) -> list[RequestT]:
    found: dict[RequestT, None] = {}
    while len(found) < count:
        found[make()] = None
    return list(found)
